"""Anomaly detection by reverse distillation with a memory of normal features.

A frozen teacher network describes "fabric" patches at two levels, the student decodes them from the
bottleneck, and a memory per level recalls normal features before the comparison.
"""
import argparse
import math
import torch
from torch import nn
import torch.nn.functional as F


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Sequential(
            nn.Conv2d(1, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.l2 = nn.Sequential(
            nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()
        )

    def forward(self, x):
        a = self.l1(x)
        return a, self.l2(a)


class NormalityRecall(nn.Module):
    """Soft look-up: every position asks the keys and receives a mixture of values."""

    def __init__(self, slots, channels, fixed=False):
        super().__init__()
        self.channels = channels
        self.query = nn.Conv2d(channels, channels, 1)
        keys = torch.randn(slots, channels)
        values = torch.randn(slots, channels)
        if fixed:
            keys, values = nn.Parameter(keys), nn.Parameter(values)
        self.keys, self.values = keys, values

    def forward(self, x):
        b, c, h, w = x.shape
        q = self.query(x).flatten(2).transpose(1, 2)
        att = (q @ self.keys.t() / math.sqrt(self.channels)).softmax(-1)
        recalled = att @ self.values
        return recalled.transpose(1, 2).reshape(b, c, h, w)


class Student(nn.Module):
    def __init__(self, slots, fixed=False):
        super().__init__()
        self.bottleneck = nn.Sequential(nn.Conv2d(32, 16, 3, 2, 1), nn.ReLU())
        self.up2 = nn.Sequential(
            nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1)
        )
        self.up1 = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1)
        )
        self.mem2, self.mem1 = NormalityRecall(slots, 32, fixed), NormalityRecall(
            slots, 16, fixed
        )

    def forward(self, f2):
        s2 = self.up2(self.bottleneck(f2))
        s2 = s2 + self.mem2(s2)
        s1 = self.up1(s2)
        s1 = s1 + self.mem1(s1)
        return s1, s2


def fabric(n, gen, defects=False, size=32):
    yy, xx = torch.meshgrid(
        torch.arange(size).float(), torch.arange(size).float(), indexing="ij"
    )
    ph = torch.rand(n, 2, 1, 1, generator=gen) * 6.28
    x = torch.sin(xx * 0.8 + ph[:, 0]) + torch.sin(yy * 0.8 + ph[:, 1])
    x = x + 0.15 * torch.randn(n, size, size, generator=gen)
    if defects:
        for i in range(n):
            r, c = torch.randint(2, size - 9, (2,), generator=gen).tolist()
            x[i, r : r + 6, c : c + 6] = 0.5 * torch.randn(6, 6, generator=gen)
    return x.unsqueeze(1)


def distance(t, s):
    return 1 - F.cosine_similarity(t, s, dim=1)


@torch.no_grad()
def auroc(teacher, student, good, bad):
    def score(x):
        a, b = teacher(x)
        s1, s2 = student(b)
        m = (
            distance(a, s1)
            + F.interpolate(distance(b, s2)[:, None], scale_factor=2)[:, 0]
        )
        return m.flatten(1).amax(1)

    g, d = score(good), score(bad)
    return (d[:, None] > g[None]).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--slots", type=int, default=20)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(7)
    gen = torch.Generator().manual_seed(7)

    teacher = Teacher()
    with torch.no_grad():
        for _ in range(5):
            teacher(fabric(32, gen))
    teacher.eval().requires_grad_(False)

    student = Student(args.slots, fixed=args.fixed)
    before = [
        m.clone().detach()
        for k in (student.mem1, student.mem2)
        for m in (k.keys, k.values)
    ]
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3, betas=(0.5, 0.99))
    good, bad = fabric(64, gen), fabric(64, gen, defects=True)

    for step in range(args.steps):
        student.train()
        a, b = teacher(fabric(16, gen))
        s1, s2 = student(b)
        loss = distance(a, s1).mean() + distance(b, s2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 25 == 0:
            student.eval()
            print(
                f"step {step + 1} loss {loss.item():.4f} image auroc {auroc(teacher, student, good, bad):.3f}"
            )

    if args.prove:
        after = [
            m.detach() for k in (student.mem1, student.mem2) for m in (k.keys, k.values)
        ]
        change = sum((x - y).abs().sum().item() for x, y in zip(before, after))
        print(f"total change of the memory {change:.4f}")
        print("fault shows:", "yes" if change == 0 else "no")


if __name__ == "__main__":
    main()
