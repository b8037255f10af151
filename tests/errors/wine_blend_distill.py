"""Compress a wine blend recogniser.

A wide network is trained on spectra first, saved, read back, and a small one
then learns from its soft predictions (and a bit from the labels). The spectra
for the second part are read tank by tank, three blends at a time.
"""
import argparse
import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BLENDS, BANDS = 8, 32


def spectra(n, seed):
    world = torch.Generator().manual_seed(70)
    grid = torch.linspace(0, 1, BANDS)
    centres = torch.rand(BLENDS, 4, 1, generator=world)
    heights = 0.4 + torch.rand(BLENDS, 4, 1, generator=world)
    pure = (heights * torch.exp(-(((grid - centres) / 0.07) ** 2))).sum(1)
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, BLENDS, (n,), generator=g)
    other = torch.randint(0, BLENDS, (n,), generator=g)
    share = 0.5 * torch.rand(n, 1, generator=g)
    x = (1 - share) * pure[y] + share * pure[other]
    tilt = 0.3 * torch.randn(n, 1, generator=g) * (grid - 0.5)
    return x + tilt + 0.2 * torch.randn(n, BANDS, generator=g), y


def teacher_net():
    return nn.Sequential(
        nn.Linear(BANDS, 192),
        nn.BatchNorm1d(192),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(192, 192),
        nn.BatchNorm1d(192),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(192, BLENDS),
    )


def student_net():
    return nn.Sequential(nn.Linear(BANDS, 24), nn.ReLU(), nn.Linear(24, BLENDS))


class Batches:
    def __init__(self, x, y, size, seed, tanks=BLENDS):
        self.x, self.y, self.size, self.tanks = x, y, size, tanks
        self.g = torch.Generator().manual_seed(seed)

    def __call__(self):
        open_tanks = torch.randperm(BLENDS, generator=self.g)[: self.tanks]
        pool = torch.isin(self.y, open_tanks).nonzero().squeeze(1)
        rows = pool[torch.randint(0, len(pool), (self.size,), generator=self.g)]
        return self.x[rows], self.y[rows]


@torch.no_grad()
def accuracy(model, x, y):
    was = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was)
    return acc


@torch.no_grad()
def divergence(student, teacher, x):
    """Mean KL from the teacher's test predictions, both at temperature 1."""
    was = teacher.training
    teacher.eval()
    kl = soft_loss(student(x), teacher(x), 1.0).item()
    teacher.train(was)
    return kl


def train_teacher(batches, steps):
    net = teacher_net()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for _ in range(steps):
        x, y = batches()
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    return file


def soft_loss(student_logits, teacher_logits, temperature):
    log_p = F.log_softmax(student_logits / temperature, dim=1)
    q = F.softmax(teacher_logits / temperature, dim=1)
    return F.kl_div(log_p, q, reduction="batchmean") * temperature**2


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=500, help="student steps")
    ap.add_argument("--teacher-steps", type=int, default=200)
    ap.add_argument("--temperature", type=float, default=2.0)
    ap.add_argument("--hard", type=float, default=0.1)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(90)
    x_train, y_train = spectra(1500, 1)
    x_test, y_test = spectra(1000, 2)

    file = train_teacher(Batches(x_train, y_train, 100, seed=3), args.teacher_steps)
    teacher = teacher_net()
    teacher.load_state_dict(torch.load(file))
    teacher.requires_grad_(False)
    if args.fixed:
        teacher.eval()
    stats = {k: v.clone() for k, v in teacher.state_dict().items() if "running" in k}
    print(f"teacher test accuracy {accuracy(teacher, x_test, y_test):.4f}")

    torch.manual_seed(91)
    student = student_net()
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: 0.5 * (1 + math.cos(math.pi * s / args.steps))
    )
    batches = Batches(x_train, y_train, 24, seed=4, tanks=3)
    total = 0.0
    for step in range(1, args.steps + 1):
        x, y = batches()
        with torch.no_grad():
            guide = teacher(x)
        out = student(x)
        loss = soft_loss(out, guide, args.temperature) + args.hard * F.cross_entropy(
            out, y
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        total += loss.item()
        if step % 50 == 0:
            print(
                f"step {step:4d}  loss {total / 50:.4f}  "
                f"student test accuracy {accuracy(student, x_test, y_test):.4f}"
            )
            total = 0.0
    print(
        f"student test accuracy {accuracy(student, x_test, y_test):.4f}, "
        f"divergence from the teacher {divergence(student, teacher, x_test):.4f}"
    )

    if args.prove:
        drift = max(
            (v - stats[k]).abs().max().item()
            for k, v in teacher.state_dict().items()
            if k in stats
        )
        with torch.no_grad():
            twice = (teacher(x_test[:64]) - teacher(x_test[:64])).abs().mean().item()
        print(
            f"teacher: statistics moved by {drift:.5f}, two passes differ by {twice:.5f}"
        )
        print("fault shows:", "yes" if drift > 0 or twice > 0 else "no")


if __name__ == "__main__":
    main()
