"""
Distil a wide satellite-tile classifier into a small one.

Stage 1 trains the teacher for a while, stage 2 trains the student on soft labels.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

N_CLASSES = 6


def make_tiles(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, N_CLASSES, (n,), generator=g)
    grid = torch.arange(16).float()
    yy, xx = torch.meshgrid(grid, grid, indexing="ij")
    angle = y.float() * torch.pi / N_CLASSES + 0.12 * torch.randn(n, generator=g)
    phase = torch.rand(n, generator=g) * 6.28
    field = torch.cos(angle)[:, None, None] * xx + torch.sin(angle)[:, None, None] * yy
    img = torch.sin(1.2 * field + phase[:, None, None])
    tint = 0.3 * torch.randn(n, 3, 1, 1, generator=g)
    return (
        img.unsqueeze(1) * 0.7 + tint + 0.7 * torch.randn(n, 3, 16, 16, generator=g),
        y,
    )


def build(width, dropout):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(2 * width * 16, N_CLASSES),
    )


@torch.no_grad()
def score(model, x, y):
    was_training = model.training
    model.eval()
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train(was_training)
    return acc


def batches(x, y, size, gen):
    while True:
        order = torch.randperm(len(x), generator=gen)
        for i in range(0, len(x) - size + 1, size):
            idx = order[i : i + size]
            yield x[idx], y[idx]


def fit_teacher(model, data, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-3)
    for _ in range(steps):
        x, y = next(data)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model


class Distiller:
    def __init__(self, teacher, student, temperature=3.0, alpha=0.8):
        self.teacher, self.student = teacher, student
        self.T, self.alpha = temperature, alpha
        for p in self.teacher.parameters():
            p.requires_grad_(False)

    def loss(self, x, y):
        with torch.no_grad():
            soft = F.softmax(self.teacher(x) / self.T, dim=1)
        out = self.student(x)
        kd = (
            F.kl_div(F.log_softmax(out / self.T, dim=1), soft, reduction="batchmean")
            * self.T**2
        )
        ce = F.cross_entropy(out, y)
        return self.alpha * kd + (1 - self.alpha) * ce, kd.detach(), ce.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--teacher-steps", type=int, default=60)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(21)
    gen = torch.Generator().manual_seed(22)
    x, y = make_tiles(640, 1)
    vx, vy = make_tiles(300, 2)
    data = batches(x, y, 32, gen)

    teacher = fit_teacher(build(24, 0.5), data, args.teacher_steps)
    print(f"teacher ready, val acc {score(teacher, vx, vy):.3f}")
    student = build(6, 0.0)
    if args.fixed:
        teacher.eval()
    handed_over = copy.deepcopy(teacher.state_dict())

    distiller = Distiller(teacher, student)
    opt = torch.optim.Adam(student.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.steps)
    kd_sum = ce_sum = 0.0
    for step in range(1, args.steps + 1):
        xb, yb = next(data)
        loss, kd, ce = distiller.loss(xb, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        kd_sum += kd.item()
        ce_sum += ce.item()
        if step % 20 == 0:
            print(
                f"step {step:4d}  kd {kd_sum / 20:.4f}  ce {ce_sum / 20:.4f}  student val acc {score(student, vx, vy):.3f}"
            )
            kd_sum = ce_sum = 0.0

    if args.prove:
        with torch.no_grad():
            twice = (teacher(vx[:32]) - teacher(vx[:32])).abs().max().item()
        now = teacher.state_dict()
        drift = max(
            (now[k] - v).abs().max().item()
            for k, v in handed_over.items()
            if "running" in k
        )
        print(
            f"# teacher: two passes over the same tiles differ by {twice:.4f}, running statistics moved by {drift:.4f}"
        )
        print("fault shows:", "yes" if twice > 0 or drift > 0 else "no")


if __name__ == "__main__":
    main()
