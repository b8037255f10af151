#!/usr/bin/env python
# Surface velocity of glaciers from terrain and climate features.
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Config:
    features: int = 10
    width: int = 32
    depth: int = 4
    batch: int = 64
    lr: float = 3e-3
    weight_decay: float = 1e-4
    n_train: int = 1500
    n_test: int = 500
    seed: int = 2024


def survey(cfg):
    g = torch.Generator().manual_seed(cfg.seed)
    n = cfg.n_train + cfg.n_test
    x = torch.randn(n, cfg.features, generator=g)
    slope, thick, melt, temp = x[:, 0], x[:, 1], x[:, 2], x[:, 3]
    v = torch.tanh(slope * thick) + 0.8 * torch.sin(2 * melt) * torch.sigmoid(temp)
    v = v + 0.5 * (x[:, 4] * x[:, 5]).clamp(-2, 2) + 0.2 * x[:, 6]
    v = v + 0.1 * torch.randn(n, generator=g)
    v = (v - v.mean()) / v.std()
    cut = cfg.n_train
    return (x[:cut], v[:cut]), (x[cut:], v[cut:])


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h):
        return h + self.down(torch.relu(self.up(self.norm(h))))


class VelocityNet(nn.Module):
    def __init__(self, cfg, fixed=False):
        super().__init__()
        self.stem = nn.Linear(cfg.features, cfg.width)
        self.blocks = [ResidualBlock(cfg.width) for _ in range(cfg.depth)]
        if fixed:
            self.blocks = nn.ModuleList(self.blocks)
        self.norm = nn.LayerNorm(cfg.width)
        self.out = nn.Linear(cfg.width, 1)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h)).squeeze(-1)


class Trainer:
    def __init__(self, cfg, model, train, test):
        self.cfg, self.model = cfg, model
        self.x, self.y = train
        self.test = test
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay
        )
        self.loss_fn = nn.MSELoss()
        self.g = torch.Generator().manual_seed(cfg.seed + 1)
        self.step = 0

    def train_step(self):
        rows = torch.randint(0, len(self.x), (self.cfg.batch,), generator=self.g)
        loss = self.loss_fn(self.model(self.x[rows]), self.y[rows])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def r2(self):
        self.model.eval()
        x, y = self.test
        res = (self.model(x) - y).pow(2).sum()
        tot = (y - y.mean()).pow(2).sum()
        self.model.train()
        return (1 - res / tot).item()

    def fit(self, steps, every=50):
        window = []
        for _ in range(steps):
            window.append(self.train_step())
            if self.step % every == 0:
                print(
                    f"step {self.step:5d} | mse {sum(window) / len(window):.4f} "
                    f"| test R2 {self.r2():.4f}"
                )
                window = []
        return self.r2()


def flat(blocks):
    return [
        torch.cat([p.detach().flatten() for p in b.parameters()]).clone()
        for b in blocks
    ]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    cfg = Config()
    torch.manual_seed(cfg.seed)
    train, test = survey(cfg)
    model = VelocityNet(cfg, fixed=args.fixed)
    start = flat(model.blocks)

    trainer = Trainer(cfg, model, train, test)
    r2 = trainer.fit(args.steps)
    print(f"final test R2 {r2:.4f}")

    if args.prove:
        moved = [(a - b).norm().item() for a, b in zip(start, flat(model.blocks))]
        print("distance travelled by each block:", ", ".join(f"{m:.4f}" for m in moved))
        print("fault shows:", "yes" if max(moved) == 0.0 else "no")


if __name__ == "__main__":
    main()
