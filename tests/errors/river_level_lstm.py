"""River level one step ahead from rain and past levels, with an LSTM.
Floods make rare, very large targets, hence the gradient clipping."""
import argparse
from argparse import Namespace

import numpy as np
import torch
import torch.nn as nn


def hydrograph(hours, seed):
    rng = np.random.default_rng(seed)
    rain = rng.gamma(0.25, 1.0, size=hours) * (rng.random(hours) < 0.25)
    storm = rng.random(hours) < 0.006
    rain = rain + storm * rng.pareto(2.2, size=hours) * 8
    soil, level = 0.0, 0.5
    out = np.empty((hours, 2), dtype=np.float32)
    for t in range(hours):
        soil = 0.9 * soil + rain[t]
        level = 0.8 * level + 0.1 + 0.06 * soil + 0.02 * max(soil - 3, 0) ** 1.3
        out[t] = rain[t], level + 0.02 * rng.normal()
    return out


class Windows:
    def __init__(self, series, length, batch, seed, scale):
        self.series = (series - scale[0]) / scale[1]
        self.length, self.batch = length, batch
        self.rng = np.random.default_rng(seed)

    def sample(self):
        starts = self.rng.integers(
            0, len(self.series) - self.length - 1, size=self.batch
        )
        block = np.stack([self.series[s : s + self.length + 1] for s in starts])
        block = torch.from_numpy(block.astype(np.float32))
        return block[:, :-1], block[:, 1:, 1]


class RiverNet(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(2, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.head(h).squeeze(-1)


def total_norm(model):
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(grads).norm().item()


def update(model, optimizer, x, y, args: Namespace):
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    if args.fixed:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=args.clip)
    else:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=args.clip)
        loss.backward()
    norm = total_norm(model) if args.prove else 0.0
    optimizer.step()
    return loss.item(), norm


@torch.no_grad()
def evaluate(model, series, scale, length=48):
    data = torch.from_numpy(((series - scale[0]) / scale[1]).astype(np.float32))
    n = (len(data) - 1) // length
    x = data[: n * length].reshape(n, length, 2)
    y = data[1 : n * length + 1, 1].reshape(n, length)
    err = (model(x) - y)[:, 12:]
    return err.abs().median().item(), err.abs().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(8)
    series, held = hydrograph(6000, 1), hydrograph(2500, 2)
    centre = np.median(series, axis=0)
    spread = np.percentile(series, 90, axis=0) - np.percentile(series, 10, axis=0)
    scale = (centre, spread + 1e-3)
    data = Windows(series, args.length, args.batch, seed=3, scale=scale)

    model = RiverNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    norms, recent = [], []
    for step in range(args.steps):
        x, y = data.sample()
        loss, norm = update(model, optimizer, x, y, args)
        norms.append(norm)
        recent.append(loss)
        if (step + 1) % 50 == 0:
            med, mean = evaluate(model, held, scale)
            print(
                f"step {step + 1:4d}  loss (median of 50) {np.median(recent):.4f}  "
                f"held-out abs error: median {med:.4f} mean {mean:.4f}"
            )
            recent = []

    med, mean = evaluate(model, held, scale)
    print(f"held-out abs error: median {med:.4f} mean {mean:.4f}")

    if args.prove:
        over = [i for i, n in enumerate(norms) if n > args.clip * 1.001]
        print(
            f"gradient norm at the optimizer step: max {max(norms):.3f}, limit {args.clip}, "
            f"above it in {len(over)} of {len(norms)} steps, first {over[:1]}"
        )
        print("fault shows:", "yes" if over else "no")


if __name__ == "__main__":
    main()
