"""Predict the taste score of an espresso shot from pressure / flow curves and recipe."""
import argparse
import torch
import torch.nn as nn


def pull_shots(n, seed, points=30):
    g = torch.Generator().manual_seed(seed)
    recipe = torch.randn(n, 6, generator=g)  # dose, yield, temp, grind, age, roast
    t = torch.linspace(0, 1, points)
    peak = 0.45 + 0.12 * torch.tanh(recipe[:, 3:4])
    pressure = torch.exp(-(((t - peak) / 0.25) ** 2)) * (1 + 0.2 * recipe[:, :1])
    flow = t * (1.2 - 0.3 * recipe[:, 3:4]) + 0.1 * recipe[:, 1:2]
    curves = torch.cat([pressure, flow], 1) + 0.1 * torch.randn(
        n, 2 * points, generator=g
    )
    ratio = recipe[:, 1] - recipe[:, 0]
    score = (
        -0.7 * ratio**2
        + 0.8 * torch.sin(1.5 * recipe[:, 3])
        + 0.6 * recipe[:, 2] * recipe[:, 5].sign()
    )
    score = score + 0.6 * torch.randn(n, generator=g)
    return torch.cat([recipe, curves], 1), score


class ShotNet(nn.Module):
    def __init__(self, d_in, width=128, p=0.25):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(p),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        pred = model(x)
    return torch.mean((pred - y) ** 2).item()


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=30)
    ap.add_argument("--bs", type=int, default=50)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=13)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def main():
    args = get_args()
    torch.manual_seed(args.seed)

    xtr, ytr = pull_shots(600, 71)
    xva, yva = pull_shots(600, 72)
    mu, sd = xtr.mean(0), xtr.std(0)
    xtr, xva = (xtr - mu) / sd, (xva - mu) / sd
    ym, ys = ytr.mean(), ytr.std()
    ytr, yva = (ytr - ym) / ys, (yva - ym) / ys

    model = ShotNet(xtr.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    criterion = nn.MSELoss()
    shuffler = torch.Generator().manual_seed(args.seed)

    modes = []
    model.train()
    for epoch in range(1, args.epochs + 1):
        if args.fixed:
            model.train()
        running = 0.0
        n_batches = 0
        for idx in torch.randperm(len(xtr), generator=shuffler).split(args.bs):
            optimizer.zero_grad()
            out = model(xtr[idx])
            loss = criterion(out, ytr[idx])
            loss.backward()
            optimizer.step()
            running += loss.item()
            n_batches += 1
            modes.append(model.training)
        scheduler.step()
        val = evaluate(model, xva, yva)
        if epoch == 1 or epoch % 5 == 0:
            print(
                f"epoch {epoch:3d}  train mse {running / n_batches:.4f}  val mse {val:.4f}"
            )

    print(f"final val mse {val:.4f}  (1.0 = always predicting the mean)")

    if args.prove:
        off = modes.count(False)
        first = modes.index(False) if off else None
        print(
            f"{off} of {len(modes)} steps ran with dropout and batch statistics off, first: {first}"
        )
        print("fault shows:", "yes" if off else "no")


if __name__ == "__main__":
    main()
