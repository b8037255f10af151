"""
Semi-supervised ECG beat classification with a mean teacher (few labelled, many unlabelled beats).
"""
import argparse
import copy
import math
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

hp = SimpleNamespace(
    labelled=120,
    unlabelled=2000,
    test=600,
    length=128,
    batch_l=16,
    batch_u=48,
    lr=1.5e-3,
    ema_decay=0.97,
    max_weight=3.0,
    ramp=0.4,
)
BEATS = ("normal", "ventricular", "atrial", "paced")


def beats(n, g):
    t = torch.linspace(0, 1, hp.length).expand(n, -1)
    y = torch.randint(0, len(BEATS), (n,), generator=g)

    def r(lo, hi):
        return lo + (hi - lo) * torch.rand(n, 1, generator=g)

    def bump(c, w, a):
        return a * torch.exp(-((t - c) ** 2) / (2 * w**2))

    c = r(0.42, 0.52)
    ventricular, atrial, paced = ((y == k).float()[:, None] for k in (1, 2, 3))
    x = bump(c, r(0.015, 0.025) * (1 + 1.6 * ventricular), r(0.9, 1.3))
    x = x - bump(
        c + 0.04 + 0.03 * ventricular, r(0.012, 0.02) * (1 + ventricular), r(0.15, 0.35)
    )
    x = x + bump(
        c - 0.16 - 0.06 * atrial * r(0.3, 1),
        r(0.02, 0.03),
        r(0.1, 0.2) * (1 - 0.8 * ventricular),
    )
    x = x + bump(
        c + 0.26, r(0.04, 0.06), r(0.2, 0.35) * (1 - 1.7 * ventricular * r(0.3, 1))
    )
    x = x + paced * bump(c - 0.07, 0.004, r(0.5, 1.0))
    wander = r(0, 0.25) * torch.sin(2 * math.pi * (r(0.3, 1) * t + r(0, 1)))
    x = r(0.7, 1.3) * x + wander + 0.1 * torch.randn(n, hp.length, generator=g)
    return x.unsqueeze(1), y


def jitter(x):
    n = x.size(0)
    x = torch.stack(
        [
            torch.roll(row, int(s), dims=-1)
            for row, s in zip(x, torch.randint(-6, 7, (n,)))
        ]
    )
    return x * (0.8 + 0.4 * torch.rand(n, 1, 1)) + 0.07 * torch.randn_like(x)


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()

        def unit(i, o):
            return nn.Sequential(
                nn.Conv1d(i, o, 7, padding=3),
                nn.GroupNorm(4, o),
                nn.ReLU(),
                nn.MaxPool1d(2),
            )

        self.body = nn.Sequential(unit(1, 16), unit(16, 24), unit(24, 32))
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * hp.length // 8, len(BEATS))
        )

    def forward(self, x):
        return self.head(self.body(x))


class MeanTeacher:
    def __init__(self, fixed):
        self.fixed = fixed
        self.student = BeatNet()
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.requires_grad_(False)
        self.teacher.eval()

    @torch.no_grad()
    def update_teacher(self, decay):
        new, old = decay, 1 - decay
        if self.fixed:
            new, old = old, new
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.mul_(old).add_(s, alpha=new)


@torch.no_grad()
def accuracy(net, data):
    mode = net.training
    net.eval()
    acc = (net(data[0]).argmax(1) == data[1]).float().mean().item()
    net.train(mode)
    return acc


def consistency_weight(step, total):
    p = min(1.0, step / max(1, hp.ramp * total))
    return hp.max_weight * math.exp(-5 * (1 - p) ** 2)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(61)
    g = torch.Generator().manual_seed(62)
    lab, unl, test = beats(hp.labelled, g), beats(hp.unlabelled, g), beats(hp.test, g)

    lset, uset = TensorDataset(*lab), TensorDataset(unl[0])
    l_loader = DataLoader(
        lset, hp.batch_l, sampler=RandomSampler(lset, True, args.steps * hp.batch_l)
    )
    u_loader = DataLoader(
        uset, hp.batch_u, sampler=RandomSampler(uset, True, args.steps * hp.batch_u)
    )
    mt = MeanTeacher(args.fixed)
    optimizer = torch.optim.Adam(mt.student.parameters(), lr=hp.lr)

    # reference average of the student weights
    slow = [p.detach().clone() for p in mt.student.parameters()]
    for step, ((xl, yl), (xu,)) in enumerate(zip(l_loader, u_loader)):
        x = torch.cat([xl, xu])
        logits = mt.student(jitter(x))
        with torch.no_grad():
            target = mt.teacher(jitter(x)).softmax(1)
        sup = F.cross_entropy(logits[: len(yl)], yl)
        cons = F.mse_loss(logits.softmax(1), target)
        loss = sup + consistency_weight(step, args.steps) * cons
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mt.update_teacher(hp.ema_decay)
        for a, p in zip(slow, mt.student.parameters()):
            a.mul_(hp.ema_decay).add_(p.detach(), alpha=1 - hp.ema_decay)
        if (step + 1) % 40 == 0:
            print(
                f"{step + 1:4d} sup {sup.item():.4f} cons {cons.item():.5f} "
                f"student {accuracy(mt.student, test):.3f} teacher {accuracy(mt.teacher, test):.3f}"
            )

    if args.prove:

        def gap(a, b):
            return sum((p - q).pow(2).sum().item() for p, q in zip(a, b)) ** 0.5

        student, teacher = list(mt.student.parameters()), list(mt.teacher.parameters())
        d_student, d_slow = gap(teacher, student), gap(teacher, slow)
        print(
            f"distance of the teacher to the student {d_student:.5f}, to the slow average {d_slow:.5f}"
        )
        print("fault shows:", "yes" if d_student < d_slow else "no")


if __name__ == "__main__":
    main()
