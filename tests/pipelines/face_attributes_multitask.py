"""Two data sources, one trunk: binary attributes with missing labels, and age regression.

The tasks are weighted by learned log-variances (Kendall et al.).
"""
import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split

ATTRIBUTES = ["glasses", "beard", "hat", "smile"]


def draw_face(gen):
    """A 24x24 picture plus its four attributes and age."""

    def u(a, b):
        return a + (b - a) * torch.rand((), generator=gen).item()

    img = torch.zeros(24, 24)
    yy, xx = torch.meshgrid(torch.arange(24.0), torch.arange(24.0), indexing="ij")
    cx, cy = u(10, 13), u(10, 13)
    img[((xx - cx) / 8) ** 2 + ((yy - cy) / 9) ** 2 < 1] = 0.6
    attr = (torch.rand(4, generator=gen) < 0.45).float()
    ex, ey = int(cx), int(cy) - 2
    img[ey, ex - 3] = img[ey, ex + 3] = 0.1
    if attr[0]:
        img[ey - 1 : ey + 2, ex - 5 : ex + 6] -= 0.3
    if attr[1]:
        img[int(cy) + 6 : int(cy) + 9, ex - 3 : ex + 4] -= 0.35
    if attr[2]:
        img[: max(2, int(cy) - 6)] += 0.4
    if attr[3]:
        for k in range(-3, 4):
            img[int(cy) + 4 - (abs(k) > 1), ex + k] = 1.0
    age = u(18, 80)
    wrinkle = (age - 18) / 62
    img += 0.5 * wrinkle * torch.sin(2.2 * yy) * (img > 0.3)
    return (img + 0.12 * torch.randn(24, 24, generator=gen)).unsqueeze(0), attr, age


class AttributeSet(Dataset):
    def __init__(self, n, seed, missing=0.3):
        gen = torch.Generator().manual_seed(seed)
        faces = [draw_face(gen) for _ in range(n)]
        self.x = torch.stack([f[0] for f in faces])
        self.y = torch.stack([f[1] for f in faces])
        self.known = (torch.rand(n, 4, generator=gen) >= missing).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.known[i]


class AgeSet(Dataset):
    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        faces = [draw_face(gen) for _ in range(n)]
        self.x = torch.stack([f[0] for f in faces])
        self.age = torch.tensor([f[2] for f in faces])

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.age[i]


class MultiTask(nn.Module):
    def __init__(self, age_mean, age_std):
        super().__init__()

        def stage(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1),
                nn.GroupNorm(4, o),
                nn.GELU(),
                nn.MaxPool2d(2),
            )

        self.trunk = nn.Sequential(
            stage(1, 16), stage(16, 32), stage(32, 32), nn.Flatten()
        )
        self.attr_head = nn.Sequential(
            nn.Linear(288, 48),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Linear(48, len(ATTRIBUTES)),
        )
        self.age_head = nn.Sequential(nn.Linear(288, 48), nn.GELU(), nn.Linear(48, 1))
        self.register_buffer("age_mean", torch.tensor(age_mean))
        self.register_buffer("age_std", torch.tensor(age_std))

    def normalise_age(self, age):
        return (age - self.age_mean) / self.age_std

    def predict_age(self, features):
        return self.age_head(features).squeeze(1)


class UncertaintyWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, attr_loss, age_loss):
        s = self.log_var
        return (
            torch.exp(-s[0]) * attr_loss
            + 0.5 * s[0]
            + 0.5 * torch.exp(-s[1]) * age_loss
            + 0.5 * s[1]
        )


def masked_bce(logits, y, known):
    per_entry = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    return (per_entry * known).sum() / known.sum().clamp(min=1)


@torch.no_grad()
def evaluate(model, attr_loader, age_loader):
    model.eval()
    hit, known_total = torch.zeros(4), torch.zeros(4)
    for x, y, known in attr_loader:
        pred = (model.attr_head(model.trunk(x)) > 0).float()
        hit += ((pred == y).float() * known).sum(0)
        known_total += known.sum(0)
    err = n = 0
    for x, age in age_loader:
        pred = model.predict_age(model.trunk(x)) * model.age_std + model.age_mean
        err += (pred - age).abs().sum().item()
        n += len(age)
    model.train()
    return hit / known_total, err / n


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=220)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=8)
    return ap.parse_args()


def make_splits(seed):
    split_gen = torch.Generator().manual_seed(seed)
    attr_train, attr_val = random_split(
        AttributeSet(1000, seed=1), [0.8, 0.2], generator=split_gen
    )
    age_train, age_val = random_split(
        AgeSet(600, seed=2), [0.8, 0.2], generator=split_gen
    )
    return attr_train, attr_val, age_train, age_val


def make_optimizer(model, weights, lr):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": 1e-2},
            {"params": vectors, "weight_decay": 0.0},
            {"params": weights.parameters(), "weight_decay": 0.0, "lr": 5e-3},
        ],
        lr=lr,
    )


def endless(loader):
    # a new shuffle on every pass
    for _ in itertools.count():
        yield from loader


def main():
    args = parse_args()
    torch.manual_seed(args.seed)

    attr_train, attr_val, age_train, age_val = make_splits(args.seed)
    attr_loader = DataLoader(attr_train, batch_size=24, shuffle=True)
    age_loader = DataLoader(age_train, batch_size=16, shuffle=True)
    attr_val_loader, age_val_loader = DataLoader(attr_val, batch_size=100), DataLoader(
        age_val, batch_size=100
    )

    train_ages = torch.stack([age for _, age in age_train])
    model = MultiTask(train_ages.mean().item(), train_ages.std().item())
    weights = UncertaintyWeights()
    optimizer = make_optimizer(model, weights, args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, T_max=args.steps, eta_min=1e-5
    )

    attr_stream, age_stream = endless(attr_loader), endless(age_loader)
    model.train()
    meter = torch.zeros(3)
    for step in range(1, args.steps + 1):
        xa, ya, known = next(attr_stream)
        xb, age = next(age_stream)
        features = model.trunk(torch.cat([xa, xb]))
        fa, fb = features.split([len(xa), len(xb)])
        attr_loss = masked_bce(model.attr_head(fa), ya, known)
        age_loss = F.mse_loss(model.predict_age(fb), model.normalise_age(age))
        loss = weights(attr_loss, age_loss)

        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.trunk.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        meter += torch.stack([loss, attr_loss, age_loss]).detach()

        if step % 44 == 0 or step == args.steps:
            acc, mae = evaluate(model, attr_val_loader, age_val_loader)
            n = (step - 1) % 44 + 1
            total, a, b = (meter / n).tolist()
            print(
                f"step {step} loss {total:.4f} attr {a:.4f} age {b:.4f} | "
                + " ".join(f"{k} {v:.2f}" for k, v in zip(ATTRIBUTES, acc.tolist()))
                + f" age MAE {mae:.1f} | log var {weights.log_var.tolist()[0]:.2f} {weights.log_var.tolist()[1]:.2f}"
            )
            meter.zero_()


if __name__ == "__main__":
    main()
