"""Distill a wide insect-sound classifier into a small one for the field recorder."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SPECIES = 6
BANDS, FRAMES = 32, 24


def spectrograms(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, SPECIES, (n,), generator=g)
    band = torch.arange(BANDS).view(1, BANDS, 1)
    time = torch.arange(FRAMES).view(1, 1, FRAMES)
    centre = (6 + 4 * y + 2.0 * torch.randn(n, generator=g)).view(n, 1, 1)
    rate = (2 + y % 3 + 0.3 * torch.randn(n, generator=g)).view(n, 1, 1)
    phase = 2 * math.pi * torch.rand(n, 1, 1, generator=g)
    chirp = torch.exp(-(((band - centre) / 2.5) ** 2)) * (
        1 + torch.sin(rate * time / 2 + phase)
    )
    x = chirp + 0.9 * torch.randn(n, BANDS, FRAMES, generator=g)
    return x.unsqueeze(1), y


def conv_unit(i, o, p):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False),
        nn.BatchNorm2d(o),
        nn.ReLU(),
        nn.Dropout2d(p),
        nn.MaxPool2d(2),
    )


class SoundNet(nn.Module):
    def __init__(self, width, p):
        super().__init__()
        self.features = nn.Sequential(
            conv_unit(1, width, p), conv_unit(width, 2 * width, p)
        )
        self.fc = nn.Linear(2 * width * BANDS // 4, SPECIES)
        self.p = p

    def forward(self, x):
        h = self.features(x).mean(3).flatten(1)
        return self.fc(F.dropout(h, self.p, self.training))


def batches(x, y, size, count):
    for _ in range(count):
        i = torch.randint(0, len(x), (size,))
        yield x[i], y[i]


def train_teacher(x, y, steps):
    teacher = SoundNet(24, p=0.25)
    opt = torch.optim.Adam(teacher.parameters(), lr=4e-3)
    teacher.train()
    for step, (xb, yb) in enumerate(batches(x, y, 48, steps)):
        loss = F.cross_entropy(teacher(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"teacher {step:4d} {loss.item():.3f}")
    return teacher


def kd_loss(student_logits, teacher_logits, labels, T=3.0, alpha=0.8):
    soft = (
        F.kl_div(
            F.log_softmax(student_logits / T, 1),
            F.softmax(teacher_logits / T, 1),
            reduction="batchmean",
        )
        * T
        * T
    )
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, labels)


def distill(teacher, student, x, y, steps, args):
    for p in teacher.parameters():
        p.requires_grad_(False)
    if args.fixed:
        teacher.eval()
    opt = torch.optim.AdamW(student.parameters(), lr=4e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, max(1, steps))
    student.train()
    for step, (xb, yb) in enumerate(batches(x, y, 32, steps)):
        xb = xb + 0.3 * torch.randn_like(xb)
        with torch.no_grad():
            t = teacher(xb)
        loss = kd_loss(student(xb), t, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"student {step:4d} {loss.item():.3f}")


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    return (net(x).argmax(1) == y).float().mean().item()


def parse():
    p = argparse.ArgumentParser()
    p.add_argument(
        "--steps", type=int, default=180, help="teacher and student updates together"
    )
    p.add_argument("--teacher-steps", type=int, default=80)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(31)
    x, y = spectrograms(1500, seed=0)
    xt, yt = spectrograms(400, seed=1)
    n_teacher = min(args.teacher_steps, args.steps)
    teacher = train_teacher(x, y, n_teacher)
    saved = {k: v.clone() for k, v in teacher.state_dict().items()}
    student = SoundNet(6, p=0.0)
    distill(teacher, student, x, y, args.steps - n_teacher, args)
    drift = any(not torch.equal(saved[k], v) for k, v in teacher.state_dict().items())
    print(
        f"teacher {accuracy(teacher, xt, yt):.3f}  student {accuracy(student, xt, yt):.3f}"
    )
    if args.prove:
        print("fault shows:", "yes" if drift else "no")


if __name__ == "__main__":
    main()
