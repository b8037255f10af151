"""Remaining range of an electric car from trip telemetry."""
import argparse

import torch
import torch.nn as nn

COLUMNS = (
    "charge",
    "temp_out",
    "speed",
    "elevation",
    "payload",
    "tyre",
    "heater",
    "age",
    "wind",
)


def simulate_trips(n, gen):
    charge = torch.rand(n, generator=gen)
    temp = torch.randn(n, generator=gen) * 9 + 11
    speed = 50 + 25 * torch.randn(n, generator=gen)
    climb = torch.randn(n, generator=gen)
    load = torch.rand(n, generator=gen)
    tyre = torch.randn(n, generator=gen)
    heater = (temp < 8).float() * torch.rand(n, generator=gen)
    age = torch.rand(n, generator=gen) * 8
    wind = torch.randn(n, generator=gen)
    use = (
        0.15
        + 2e-5 * (speed - 45) ** 2
        + 0.02 * climb.clamp(min=-1)
        + 0.03 * load
        + 0.04 * heater
        + 0.004 * wind
        - 0.003 * tyre
    )
    km = 60 * charge * (1 - 0.02 * age) / use.clamp(min=0.08)
    km = km * (1 + 0.03 * torch.randn(n, generator=gen))
    x = torch.stack([charge, temp, speed, climb, load, tyre, heater, age, wind], dim=1)
    confidence = 0.5 + torch.rand(n, generator=gen)  # quality of the GPS track
    return x, km / 100, confidence


class Standardizer:
    def fit(self, x):
        self.mu, self.sd = x.mean(0), x.std(0)
        return self

    def __call__(self, x):
        return (x - self.mu) / self.sd


class RangeNet(nn.Module):
    def __init__(self, d_in=len(COLUMNS), hidden=64, depth=2):
        super().__init__()
        dims = [d_in] + [hidden] * depth
        self.hidden = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:])
        )
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.relu(layer(x))
        return self.out(x)


def weighted_mse(pred, target, weight):
    return (weight * (pred - target) ** 2).mean()


def estimate(model, x, fixed):
    pred = model(x)
    if fixed:
        pred = pred.squeeze(-1)
    return pred


@torch.no_grad()
def score(model, x, y):
    pred = model(x).view(-1)
    mae = (pred - y).abs().mean()
    r2 = 1 - ((pred - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    return mae.item() * 100, r2.item()


def main(argv=None):
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=400)
    cli.add_argument("--batch-size", type=int, default=64)
    cli.add_argument("--lr", type=float, default=2e-3)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    args = cli.parse_args(argv)

    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(3)
    x, y, w = simulate_trips(3000, gen)
    xv, yv, _ = simulate_trips(800, gen)
    scale = Standardizer().fit(x)
    x, xv = scale(x), scale(xv)

    model = RangeNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    running = None
    deviation = 0.0
    for step in range(1, args.steps + 1):
        rows = torch.randint(len(x), (args.batch_size,), generator=gen)
        pred = estimate(model, x[rows], args.fixed)
        loss = weighted_mse(pred, y[rows], w[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if args.prove:
            with torch.no_grad():
                by_trip = sum(
                    w[r] * (p - y[r]) ** 2 for p, r in zip(pred.detach().view(-1), rows)
                )
                by_trip = by_trip / len(rows)
                deviation = max(deviation, ((loss - by_trip).abs() / by_trip).item())
        running = (
            loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        )
        if step % 50 == 0:
            print(f"step {step:4d} | smoothed loss {running:.4f}")
        if step % 200 == 0:
            mae, r2 = score(model, xv, yv)
            print(f"          | validation MAE {mae:.1f} km, R2 {r2:.3f}")

    mae, r2 = score(model, xv, yv)
    print(f"done: MAE {mae:.1f} km, R2 {r2:.3f}")
    if args.prove:
        print(f"largest relative deviation from the trip-by-trip loss: {deviation:.4f}")
        print("fault shows: " + ("yes" if deviation > 1e-3 else "no"))


if __name__ == "__main__":
    main()
