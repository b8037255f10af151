"""Segments polyps (conv2d): soft Dice and cross-entropy, auxiliary heads at coarser scales.

Checkpointed stages under bfloat16 autocast, CutMix on images and masks; the main and the
auxiliary losses go backward one after the other. The auxiliary heads are dropped at the end.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def stage(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.InstanceNorm2d(cout, affine=True),
        nn.LeakyReLU(0.1),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.InstanceNorm2d(cout, affine=True),
        nn.LeakyReLU(0.1),
    )


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.d1, self.d2, self.d3 = (
            stage(3, width),
            stage(width, 2 * width),
            stage(2 * width, 4 * width),
        )
        self.u2, self.u1 = stage(6 * width, 2 * width), stage(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)
        self.aux = nn.ModuleList(
            [nn.Conv2d(4 * width, 1, 1), nn.Conv2d(2 * width, 1, 1)]
        )

    def run(self, part, x):
        return checkpoint(part, x, use_reentrant=False) if self.training else part(x)

    def forward(self, x):
        a = self.run(self.d1, x)
        b = self.run(self.d2, F.max_pool2d(a, 2))
        c = self.run(self.d3, F.max_pool2d(b, 2))
        d = self.run(self.u2, torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        e = self.run(self.u1, torch.cat([F.interpolate(d, scale_factor=2), a], 1))
        extra = (
            []
            if not self.training or self.aux is None
            else [self.aux[0](c), self.aux[1](d)]
        )
        return self.head(e), extra


def dice_ce(logits, mask):
    logits = logits.float()
    p = logits.sigmoid()
    inter = (p * mask).sum((1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
    return dice.mean() + F.binary_cross_entropy_with_logits(logits, mask)


def cutmix(x, m):
    """A rectangle of another image, its mask with it."""
    h, w = (int(v) for v in torch.randint(6, 20, (2,)))
    top, left = int(torch.randint(0, 32 - h, (1,))), int(torch.randint(0, 32 - w, (1,)))
    other = torch.randperm(len(x))
    x, m = x.clone(), m.clone()
    box = (..., slice(top, top + h), slice(left, left + w))
    x[box], m[box] = x[other][box], m[other][box]
    return x, m


def polyps(n, seed):
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    cy, cx = 8 + 16 * torch.rand(2, n, 1, 1, generator=g)
    ry, rx = 3 + 5 * torch.rand(2, n, 1, 1, generator=g)
    mask = ((((yy - cy) / ry) ** 2 + ((xx - cx) / rx) ** 2) < 1).float().unsqueeze(1)
    wall = 0.5 + 0.2 * torch.rand(n, 3, 1, 1, generator=g) + 0.1 * torch.sin(xx / 4)
    tint = torch.tensor([0.25, -0.1, 0.0]).view(1, 3, 1, 1)
    return (
        wall + mask * tint + 0.15 * torch.randn(n, 3, 32, 32, generator=g) - 0.6,
        mask,
    )


@torch.no_grad()
def hard_dice(model, loader):
    model.eval()
    inter = total = 0.0
    for x, m in loader:
        p = (model(x)[0] > 0).float()
        inter += 2 * (p * m).sum().item()
        total += (p.sum() + m.sum()).item()
    model.train()
    return inter / total


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=45)
    args = p.parse_args()
    torch.manual_seed(9)
    train = DataLoader(
        TensorDataset(*polyps(320, 1)), batch_size=16, shuffle=True, drop_last=True
    )
    valid = DataLoader(TensorDataset(*polyps(64, 2)), batch_size=32)
    model = Net()
    opt = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.95, nesterov=True, weight_decay=1e-4
    )
    sched = torch.optim.lr_scheduler.PolynomialLR(
        opt, total_iters=args.steps, power=0.9
    )
    step = 0
    while step < args.steps:
        for x, m in train:
            if torch.rand(()) < 0.5:
                x, m = cutmix(x, m)
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out, extra = model(x)
                loss = dice_ce(out, m)
                side = sum(
                    w * dice_ce(z, F.adaptive_avg_pool2d(m, z.shape[-2:]))
                    for w, z in zip((0.2, 0.4), extra)
                )
            side.backward(retain_graph=True)  # the graph is shared with the main head
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            step += 1
            if step % 5 == 0:
                print(f"step {step:3d} loss {loss.item():.4f} side {side.item():.4f}")
            if step == args.steps:
                break
        print(f"dice of validation {hard_dice(model, valid):.3f}")
    model.aux = None
    print(
        f"without the auxiliary heads: {hard_dice(model, valid):.3f}, "
        f"{sum(q.numel() for q in model.parameters())} parameters"
    )


if __name__ == "__main__":
    main()
