"""
Card fraud detection, 3 classes (ok / stolen card / account takeover), strongly imbalanced.
Config dict on top, everything else below. Batches are balanced by a weighted sampler.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

CONFIG = {
    "n_train": 6000,
    "n_valid": 2000,
    "batch_size": 128,
    "hidden": [64, 32],
    "dropout": 0.25,
    "feature_noise": 0.3,
    "lr": 1e-3,
    "weight_decay": 1e-4,
    "seed": 20,
    "log_every": 40,
}
CLASS_NAMES = ["ok", "stolen", "takeover"]


class Transactions(Dataset):
    def __init__(self, n, seed, noise=0.0):
        rng = np.random.default_rng(seed)
        y = rng.choice(3, n, p=[0.93, 0.045, 0.025])
        amount = np.log(rng.gamma(2.0, 30, n)) + 0.9 * (y == 1) + 0.4 * (y == 2)
        hour = rng.normal(14, 4, n) + np.where(y > 0, rng.normal(6, 3, n), 0)
        distance = rng.gamma(1.2, 8, n) * (1 + 2.5 * (y == 1))
        device_age = rng.gamma(2, 200, n) * np.where(y == 2, 0.25, 1.0)
        failed_logins = rng.poisson(0.2 + 1.6 * (y == 2))
        velocity = rng.poisson(2 + 3 * (y == 1))
        merchant_risk = rng.beta(2, 6, n) + 0.15 * (y == 1)
        x = np.stack(
            [
                amount,
                hour,
                np.log1p(distance),
                np.log1p(device_age),
                failed_logins,
                velocity,
                merchant_risk,
            ],
            1,
        )
        self.x = torch.tensor(x, dtype=torch.float32)
        self.y = torch.tensor(y)
        self.noise = noise

    def standardize(self, mean, std):
        self.x = (self.x - mean) / std
        return self

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i]
        if self.noise:
            x = x + self.noise * torch.randn_like(x)
        return x, self.y[i], i


class MLP(nn.Module):
    def __init__(self, n_in, hidden, n_out, p):
        super().__init__()
        layers = []
        for h in hidden:
            layers += [nn.Linear(n_in, h), nn.ReLU(), nn.Dropout(p)]
            n_in = h
        self.net = nn.Sequential(*layers, nn.Linear(n_in, n_out))

    def forward(self, x):
        return self.net(x)


def make_sampler(labels, fixed):
    counts = torch.bincount(labels, minlength=len(CLASS_NAMES))
    weights = 1.0 / counts.float()
    if fixed:
        weights = weights[labels]
    return WeightedRandomSampler(weights, num_samples=len(labels), replacement=True)


@torch.no_grad()
def report(model, data):
    model.eval()
    logits = model(data.x)
    loss = nn.functional.cross_entropy(logits, data.y).item()
    pred = logits.argmax(1)
    recall = [
        ((pred == k) & (data.y == k)).sum().item() / max((data.y == k).sum().item(), 1)
        for k in range(3)
    ]
    acc = (pred == data.y).float().mean().item()
    model.train()
    return loss, acc, recall


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    cfg = CONFIG
    torch.manual_seed(cfg["seed"])

    train = Transactions(cfg["n_train"], cfg["seed"], noise=cfg["feature_noise"])
    valid = Transactions(cfg["n_valid"], cfg["seed"] + 1)
    mean, std = train.x.mean(0), train.x.std(0)
    train.standardize(mean, std)
    valid.standardize(mean, std)

    loader = DataLoader(
        train,
        batch_size=cfg["batch_size"],
        sampler=make_sampler(train.y, args.fixed),
        drop_last=True,
    )
    model = MLP(train.x.shape[1], cfg["hidden"], len(CLASS_NAMES), cfg["dropout"])
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"]
    )
    criterion = nn.CrossEntropyLoss()

    used = set()
    step, window = 0, []
    while step < args.steps:
        for x, y, index in loader:
            used.update(index.tolist())
            loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            window.append(loss.item())
            step += 1
            if step % cfg["log_every"] == 0:
                vloss, acc, recall = report(model, valid)
                rec = " ".join(f"{n}={r:.2f}" for n, r in zip(CLASS_NAMES, recall))
                print(
                    f"{step:5d} loss {np.mean(window):.4f} valid {vloss:.4f} acc {acc:.3f} recall {rec}"
                )
                window.clear()
            if step >= args.steps:
                break

    if args.prove:
        print(f"different transactions seen in training: {len(used)} of {len(train)}")
        print("fault shows:", "yes" if len(used) <= len(CLASS_NAMES) else "no")


if __name__ == "__main__":
    main()
