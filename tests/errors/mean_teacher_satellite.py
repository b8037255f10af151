"""Mean-teacher training for land-cover patches: few labels, many unlabelled
patches.  The teacher is the running average of the student and is the model
that is delivered in the end."""
import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F


class PatchBank:
    """four spectral bands, five classes, raw reflectance counts / 100"""

    means = torch.tensor(
        [
            [4.0, 6.0, 5.0, 2.0],
            [3.0, 7.0, 4.0, 9.0],
            [8.0, 8.0, 9.0, 7.0],
            [6.0, 5.0, 3.0, 6.0],
            [5.0, 5.0, 6.0, 4.0],
        ]
    )

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def draw(self, n):
        y = torch.randint(0, 5, (n,), generator=self.g)
        x = self.means[y][:, :, None, None] + 1.6 * torch.randn(
            n, 4, 1, 1, generator=self.g
        )
        x = x + 2.0 * torch.randn(n, 4, 12, 12, generator=self.g)
        stripes = torch.sin(torch.arange(12.0) * 1.3)[None, :, None]
        x = x + (y % 2).float()[:, None, None, None] * stripes * 1.0
        return x, y

    def jitter(self, x):
        gain = 1 + 0.1 * torch.randn(len(x), 1, 1, 1, generator=self.g)
        return x * gain + 0.5 * torch.randn(x.shape, generator=self.g)


def make_net():
    return nn.Sequential(
        nn.Conv2d(4, 24, 3, padding=1, bias=False),
        nn.BatchNorm2d(24),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(48),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 5),
    )


@torch.no_grad()
def follow(teacher, student, step, with_buffers, max_decay=0.97):
    d = min(max_decay, (1 + step) / (10 + step))
    for pt, ps in zip(teacher.parameters(), student.parameters()):
        pt.lerp_(ps, 1 - d)
    if with_buffers:
        for bt, bs in zip(teacher.buffers(), student.buffers()):
            bt.copy_(bs)


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    return (net(x).argmax(1) == y).float().mean().item()


def ramp(step, length):
    return min(1.0, step / max(1, length))


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--labelled", type=int, default=60)
    ap.add_argument("--unlabelled", type=int, default=1500)
    ap.add_argument("--weight", type=float, default=2.0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    return ap.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(1)
    bank = PatchBank(4)
    xl, yl = bank.draw(args.labelled)
    xu, _ = bank.draw(args.unlabelled)
    xt, yt = bank.draw(800)

    student = make_net()
    teacher = copy.deepcopy(student)
    teacher.requires_grad_(False)
    teacher.eval()

    with_buffers = False
    if args.fixed:
        with_buffers = True

    opt = torch.optim.SGD(
        student.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=args.steps)

    for step in range(args.steps):
        student.train()
        il = torch.randint(0, len(xl), (24,), generator=bank.g)
        iu = torch.randint(0, len(xu), (72,), generator=bank.g)
        view_s = torch.cat([bank.jitter(xl[il]), bank.jitter(xu[iu])])
        view_t = bank.jitter(xu[iu])

        out = student(view_s)
        sup = F.cross_entropy(out[:24], yl[il])
        with torch.no_grad():
            soft = teacher(view_t).softmax(1)
        cons = F.mse_loss(out[24:].softmax(1), soft)
        loss = sup + args.weight * ramp(step, args.steps // 3) * cons

        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        follow(teacher, student, step, with_buffers)

        if (step + 1) % 50 == 0:
            print(
                f"{step + 1:4d} sup {sup.item():.4f} cons {cons.item():.4f} "
                f"student {accuracy(student, xt, yt):.3f} teacher {accuracy(teacher, xt, yt):.3f}"
            )

    print(f"delivered model: {accuracy(teacher, xt, yt):.4f}")

    if args.prove:
        s_bn = [m for m in student.modules() if isinstance(m, nn.BatchNorm2d)]
        t_bn = [m for m in teacher.modules() if isinstance(m, nn.BatchNorm2d)]
        gap = max(
            (a.running_mean - b.running_mean).abs().max().item()
            for a, b in zip(s_bn, t_bn)
        )
        print("fault shows:", "yes" if gap > 0.1 else "no")


if __name__ == "__main__":
    main()
