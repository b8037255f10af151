"""Card fraud, 4 % positives. MLP on tabular features.

Config by dataclass; metrics are average precision and the mean predicted rate.
"""
import argparse
import dataclasses

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


@dataclasses.dataclass
class TrainConfig:
    n_train: int = 4000
    n_valid: int = 2000
    fraud_rate: float = 0.04
    features: int = 12
    hidden: int = 48
    batch_size: int = 64
    lr: float = 2e-3
    weight_decay: float = 1e-4
    max_steps: int = 180
    eval_every: int = 30
    seed: int = 90210


def transactions(cfg, n, seed):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < cfg.fraud_rate).astype(np.int64)
    x = rng.standard_normal((n, cfg.features))
    direction = np.linspace(-1, 1, cfg.features)
    x += 0.8 * y[:, None] * direction
    x[:, 0] += 0.9 * y * np.sign(x[:, 1])
    x[:, 5] = np.exp(0.5 * x[:, 5])
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class FraudNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.BatchNorm1d(cfg.features)
        self.layers = nn.Sequential(
            nn.Linear(cfg.features, cfg.hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Linear(cfg.hidden, 2),
        )

    def forward(self, x):
        return self.layers(self.norm(x))


def inverse_frequency(y):
    counts = torch.bincount(y, minlength=2).float()
    return counts.sum() / (2 * counts)


def make_loader(cfg, x, y):
    class_weight = inverse_frequency(y)
    sampler = WeightedRandomSampler(
        class_weight[y].double(), num_samples=len(y), replacement=True
    )
    return DataLoader(
        TensorDataset(x, y), batch_size=cfg.batch_size, sampler=sampler, drop_last=True
    )


def make_criterion(y, fixed):
    weight = inverse_frequency(y)
    if fixed:
        weight = None
    return nn.CrossEntropyLoss(weight=weight)


def average_precision(p, y):
    order = p.argsort(descending=True)
    hits = y[order].float()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum().item() / max(hits.sum().item(), 1)


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    p = model(x).softmax(1)[:, 1]
    flagged = p > 0.5
    recall = (flagged & (y == 1)).sum().item() / (y == 1).sum().item()
    false_alarms = (flagged & (y == 0)).sum().item() / (y == 0).sum().item()
    model.train()
    return average_precision(p, y), recall, false_alarms


def train(cfg, fixed):
    torch.manual_seed(cfg.seed)
    x, y = transactions(cfg, cfg.n_train, cfg.seed)
    vx, vy = transactions(cfg, cfg.n_valid, cfg.seed + 1)
    loader = make_loader(cfg, x, y)
    criterion = make_criterion(y, fixed)
    model = FraudNet(cfg)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.max_steps)

    mass = torch.zeros(2)  # what each class weighs in the loss, over all batches
    step, running = 0, 0.0
    while step < cfg.max_steps:
        for xb, yb in loader:
            loss = criterion(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.item()
            w = criterion.weight if criterion.weight is not None else torch.ones(2)
            mass += torch.bincount(yb, minlength=2) * w
            step += 1
            if step % cfg.eval_every == 0:
                ap, recall, alarms = evaluate(model, vx, vy)
                print(
                    f"step {step:4d}  loss {running / cfg.eval_every:.4f}  AP {ap:.3f}  "
                    f"recall {recall:.3f}  false alarms {alarms:.3f}"
                )
                running = 0.0
            if step >= cfg.max_steps:
                break
    return mass


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=TrainConfig.max_steps)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    a = ap.parse_args()
    config = TrainConfig(max_steps=a.steps)
    class_mass = train(config, a.fixed)
    if a.prove:
        ratio = (class_mass[1] / class_mass[0]).item()
        print(
            f"# weight of the fraud rows in the loss against that of the others: {ratio:.2f} to 1"
        )
        print("fault shows:", "yes" if ratio > 3 else "no")
