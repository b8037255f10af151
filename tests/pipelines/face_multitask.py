"""Multi-task learning on cartoon faces: smile (binary), age (regression, partly missing),
hair colour (5 classes). Learned task weights (Kendall et al.), Lion optimizer.
"""
import argparse
import collections

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

HAIR = np.array(
    [
        [0.9, 0.8, 0.3],
        [0.15, 0.1, 0.1],
        [0.5, 0.3, 0.15],
        [0.7, 0.25, 0.1],
        [0.7, 0.7, 0.7],
    ]
)
HAIR_FREQ = np.array([0.2, 0.35, 0.3, 0.05, 0.1])


class Lion(Optimizer):
    """Chen et al. 2023, decoupled weight decay"""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = (b1 * m + (1 - b1) * p.grad).sign_()
                p.add_(update, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)
        return loss


class Faces(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:24, 0:24]
        self.smile = rng.integers(0, 2, n).astype(np.float32)
        self.age = rng.uniform(5, 80, n).astype(np.float32)
        self.hair = rng.choice(5, n, p=HAIR_FREQ)
        self.x = np.empty((n, 3, 24, 24), dtype=np.float32)
        for i in range(n):
            cx, cy = 12 + rng.normal(0, 1, 2)
            img = np.full((24, 24, 3), 0.6) + rng.normal(0, 0.04, (24, 24, 3))
            face = ((xx - cx) / 7) ** 2 + ((yy - cy) / 9) ** 2 < 1
            img[face] = np.array([0.95, 0.78, 0.65]) * rng.uniform(0.6, 1.05)
            img[face & (yy < cy - 4)] = HAIR[self.hair[i]] + rng.normal(0, 0.05, 3)
            for ex in (-3, 3):
                img[int(cy) - 1, int(cx) + ex] = 0.05
            for dx in range(-3, 4):
                dy = -round(abs(dx) * 0.6) if self.smile[i] else round(abs(dx) * 0.3)
                img[int(cy) + 5 + dy, int(cx) + dx] = [0.6, 0.1, 0.1]
            lines = rng.binomial(12, self.age[i] / 90)  # wrinkles
            for _ in range(lines):
                r, c = int(cy) + rng.integers(-3, 4), int(cx) + rng.integers(-5, 3)
                img[r, c : c + 3] *= 0.75
            self.x[i] = img.transpose(2, 0, 1)
        self.age_known = rng.random(n) < 0.6

    def __len__(self):
        return len(self.hair)

    def __getitem__(self, i):
        target = {
            "smile": self.smile[i],
            "hair": int(self.hair[i]),
            "age": self.age[i] / 50 - 0.85,
            "age_known": bool(self.age_known[i]),
        }
        return torch.from_numpy(self.x[i]) * 2 - 1, target


class MultiTaskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 9, 64),
            nn.ReLU(),
        )
        self.heads = nn.ModuleDict(
            {
                "smile": nn.Linear(64, 1),
                "age": nn.Linear(64, 1),
                "hair": nn.Linear(64, 5),
            }
        )

    def forward(self, x):
        h = self.trunk(x)
        out = {k: head(h) for k, head in self.heads.items()}
        return {
            "smile": out["smile"].squeeze(1),
            "age": out["age"].squeeze(1),
            "hair": out["hair"],
        }


class UncertaintyWeighting(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.log_var = nn.ParameterDict(
            {t: nn.Parameter(torch.zeros(())) for t in tasks}
        )

    def forward(self, losses):
        return sum(
            torch.exp(-self.log_var[t]) * l + 0.5 * self.log_var[t]
            for t, l in losses.items()
        )


def task_losses(out, target):
    known = target["age_known"].float()
    age = F.smooth_l1_loss(out["age"], target["age"], reduction="none")
    return {
        "smile": F.binary_cross_entropy_with_logits(out["smile"], target["smile"]),
        "hair": F.cross_entropy(out["hair"], target["hair"]),
        "age": (age * known).sum() / known.sum().clamp(min=1),
    }


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    s = collections.Counter()
    for x, t in loader:
        out, known = net(x), t["age_known"]
        s["n"] += len(x)
        s["smile"] += ((out["smile"] > 0) == (t["smile"] > 0.5)).sum().item()
        s["hair"] += (out["hair"].argmax(1) == t["hair"]).sum().item()
        s["age"] += 50 * (out["age"] - t["age"])[known].abs().sum().item()
        s["n_age"] += known.sum().item()
    return {
        "smile_acc": s["smile"] / s["n"],
        "hair_acc": s["hair"] / s["n"],
        "age_mae": s["age"] / max(1, s["n_age"]),
    }


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    train, val = Faces(900, seed=1), Faces(250, seed=2)
    # red hair is rare: draw it more often (square root of the inverse frequency)
    counts = np.bincount(train.hair, minlength=5)
    weights = torch.as_tensor(1.0 / np.sqrt(counts[train.hair]), dtype=torch.double)
    sampler = WeightedRandomSampler(weights, num_samples=len(train), replacement=True)
    train_loader = DataLoader(train, batch_size=32, sampler=sampler, drop_last=True)
    val_loader = DataLoader(val, batch_size=125)

    net, weighting = MultiTaskNet(), UncertaintyWeighting(["smile", "hair", "age"])
    opt = Lion(
        [
            {"params": net.parameters(), "weight_decay": 1e-2},
            {"params": weighting.parameters(), "lr": 3e-3},
        ],
        lr=6e-4,
    )
    sched = torch.optim.lr_scheduler.PolynomialLR(
        opt, total_iters=args.epochs * len(train_loader), power=1.0
    )

    for epoch in range(args.epochs):
        net.train()
        logs = collections.defaultdict(float)
        for x, target in train_loader:
            losses = task_losses(net(x), target)
            total = weighting(losses)
            opt.zero_grad()
            total.backward()
            opt.step()
            sched.step()
            for k, v in losses.items():
                logs[k] += v.item() / len(train_loader)
        metrics = evaluate(net, val_loader)
        print(
            epoch,
            " ".join(f"{k} {v:.3f}" for k, v in logs.items()),
            "|",
            " ".join(f"{k} {v:.3f}" for k, v in metrics.items()),
            "|",
            " ".join(f"s_{k} {p.item():+.2f}" for k, p in weighting.log_var.items()),
        )


if __name__ == "__main__":
    main()
