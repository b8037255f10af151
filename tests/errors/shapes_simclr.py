"""SimCLR on small pictures of shapes, evaluated by a nearest-neighbour classifier on the embeddings."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, SequentialLR

SHAPES = ["disc", "square", "cross", "ring", "stripes", "triangle"]


def draw_shapes(n, gen, size=24):
    y = torch.randint(0, len(SHAPES), (n,), generator=gen)
    r = torch.rand(n, 6, generator=gen)
    yy, xx = torch.meshgrid(
        torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij"
    )
    out = []
    for k in range(n):
        cx, cy = (r[k, 0] - 0.5) * 0.5, (r[k, 1] - 0.5) * 0.5
        s = 0.4 + 0.25 * r[k, 2]
        u, v = xx - cx, yy - cy
        d = (u**2 + v**2).sqrt()
        shape = SHAPES[int(y[k])]
        if shape == "disc":
            m = d < s
        elif shape == "square":
            m = (u.abs() < s * 0.85) & (v.abs() < s * 0.85)
        elif shape == "cross":
            m = (
                ((u.abs() < s * 0.25) | (v.abs() < s * 0.25))
                & (u.abs() < s)
                & (v.abs() < s)
            )
        elif shape == "ring":
            m = (d < s) & (d > 0.6 * s)
        elif shape == "stripes":
            m = (torch.sin(u * 14) > 0) & (d < s * 1.2)
        else:
            m = (v > -s) & (v < s) & (u.abs() < (v + s) * 0.5)
        col = 0.3 + 0.7 * r[k, 3:6]
        out.append(m.float() * col[:, None, None])
    return torch.stack(out), y


def augment(x):
    n, _, h, w = x.shape
    theta = torch.zeros(n, 2, 3)
    scale = 0.8 + 0.4 * torch.rand(n)
    flip = (torch.rand(n) < 0.5).float() * 2 - 1
    theta[:, 0, 0], theta[:, 1, 1] = scale * flip, scale
    theta[:, :, 2] = (torch.rand(n, 2) - 0.5) * 0.5
    x = F.grid_sample(
        x, F.affine_grid(theta, x.shape, align_corners=False), align_corners=False
    )
    x = x * (0.5 + torch.rand(n, 3, 1, 1)) + 0.1 * torch.rand(n, 3, 1, 1)
    return x + 0.1 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, dim, 3, 2, 1),
            nn.BatchNorm2d(dim),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.net(x)


def nt_xent(z1, z2, temperature=0.3):
    n = len(z1)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.t() / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(0, n)])
    return F.cross_entropy(sim, target)


@torch.no_grad()
def knn_accuracy(encoder, bank, queries, k=5):
    encoder.eval()
    (xb, yb), (xq, yq) = bank, queries
    fb, fq = F.normalize(encoder(xb), dim=1), F.normalize(encoder(xq), dim=1)
    votes = yb[(fq @ fb.t()).topk(k, dim=1).indices]
    pred = votes.mode(dim=1).values
    encoder.train()
    return (pred == yq).float().mean().item()


def make_schedulers(optimizer, steps, warmup, fixed):
    """Linear warm-up followed by cosine annealing to zero."""
    warm = LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / warmup))
    cosine = CosineAnnealingLR(optimizer, T_max=steps - warmup)
    if fixed:
        return [SequentialLR(optimizer, [warm, cosine], milestones=[warmup])]
    return [warm, cosine]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--lr", type=float, default=0.2)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)
    images, labels = draw_shapes(960, gen)
    queries = draw_shapes(200, gen)

    encoder = Encoder()
    projector = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    params = list(encoder.parameters()) + list(projector.parameters())
    optimizer = torch.optim.SGD(params, lr=args.lr, momentum=0.9, weight_decay=1e-4)
    warmup = max(1, args.steps // 10)
    schedulers = make_schedulers(optimizer, args.steps, warmup, args.fixed)

    lrs, step = [], 0
    while step < args.steps:
        order = torch.randperm(len(images))
        for idx in order.split(args.batch):
            x = images[idx]
            z1, z2 = projector(encoder(augment(x))), projector(encoder(augment(x)))
            loss = nt_xent(z1, z2)
            optimizer.zero_grad()
            loss.backward()
            lrs.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            for s in schedulers:
                s.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}  lr {lrs[-1]:.4f}")
            if step >= args.steps:
                break
    print(f"kNN accuracy {knn_accuracy(encoder, (images, labels), queries):.3f}")

    if args.prove:

        def planned(t):
            if t < warmup:
                return args.lr * (t + 1) / warmup
            return (
                args.lr
                * 0.5
                * (1 + math.cos(math.pi * (t - warmup) / (args.steps - warmup)))
            )

        off = [abs(lr - planned(t)) for t, lr in enumerate(lrs)]
        print(
            f"largest distance between the learning rate and the plan: {max(off):.5f}"
        )
        print("fault shows:", "yes" if max(off) > 0.02 * args.lr else "no")


if __name__ == "__main__":
    main()
