"""Needle gauges read from 16x16 pictures; the fat layers are SVD-factorised in mid-run.

Phase 1 trains a fat net. Then each big Linear becomes Linear(r) -> Linear of the truncated
SVD, and training goes on. The optimizer is built anew for the new parameter list: untouched
parameters keep their Adam moments and step counts, the factors start with fresh ones in a
group of their own that warms up. In phase 2 the batch doubles where others would halve the lr.
The output is (sin, cos) of the needle, judged in degrees.
"""
import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F


def gauges(n, seed):
    g = torch.Generator().manual_seed(seed)
    angle = 2 * math.pi * torch.rand(n, generator=g)
    axis = torch.linspace(-1, 1, 16)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    cx, cy = (0.12 * torch.randn(2, n, 1, 1, generator=g)).unbind(0)
    dx, dy = xx - cx, yy - cy
    s, c = angle.sin()[:, None, None], angle.cos()[:, None, None]
    along, across = dx * c + dy * s, dx * s - dy * c
    needle = torch.exp(-((across / 0.13) ** 2)) * ((along > 0) & (along < 0.85)).float()
    rim = torch.exp(-((((dx**2 + dy**2).sqrt() - 0.95) / 0.08) ** 2))
    light = 0.6 + 0.8 * torch.rand(n, 1, 1, generator=g)
    img = light * (needle + 0.5 * rim) + 0.25 * torch.randn(n, 16, 16, generator=g)
    return img.flatten(1), torch.stack([angle.sin(), angle.cos()], 1)


def build():
    return nn.Sequential(
        nn.Linear(256, 320),
        nn.ReLU(),
        nn.Linear(320, 320),
        nn.ReLU(),
        nn.Linear(320, 320),
        nn.ReLU(),
        nn.Linear(320, 2),
    )


@torch.no_grad()
def degrees(net, x, y):
    net.eval()
    out = net(x)
    net.train()
    diff = torch.atan2(out[:, 0], out[:, 1]) - torch.atan2(y[:, 0], y[:, 1])
    diff = torch.remainder(diff + math.pi, 2 * math.pi) - math.pi
    return diff.abs().rad2deg().mean().item()


@torch.no_grad()
def factorise(linear, rank):
    """W = U S V  ->  Linear(in, r, no bias) then Linear(r, out, old bias), sqrt(S) to each."""
    u, s, vh = torch.linalg.svd(linear.weight, full_matrices=False)
    root = s[:rank].sqrt()
    down = nn.Linear(linear.in_features, rank, bias=False)
    up = nn.Linear(rank, linear.out_features)
    down.weight.copy_(root[:, None] * vh[:rank])
    up.weight.copy_(u[:, :rank] * root)
    up.bias = linear.bias  # the very same Parameter: its moments survive
    return nn.Sequential(down, up), (s[:rank].square().sum() / s.square().sum()).item()


def operate(net, old_opt, rank, lr):
    """Swap the fat layers in place; returns the new optimizer."""
    for i in (0, 2, 4):
        net[i], kept = factorise(net[i], rank)
        print(f"  layer {i}: rank {rank} keeps {100 * kept:.1f} % of the energy")
    survivors = [p for p in net.parameters() if p in old_opt.state]
    fresh = [p for p in net.parameters() if p not in old_opt.state]
    assert len(fresh) == 6 and len(survivors) == 5  # 3 old biases and the read-out
    opt = torch.optim.Adam(
        [{"params": survivors, "lr": lr}, {"params": fresh, "lr": lr}]
    )
    for p in survivors:
        opt.state[p] = old_opt.state[p]
    return opt


def batches(n, size, gen):
    while True:
        for idx in torch.randperm(n, generator=gen).split(size):
            if len(idx) == size:
                yield idx


def fit(net, opt, data, steps, batch_of, gen, tag, sched=None):
    x, y = data
    losses, size, feed = [], None, None
    for step in range(steps):
        if batch_of(step) != size:
            size = batch_of(step)
            feed = batches(len(x), size, gen)
        idx = next(feed)
        loss = F.mse_loss(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if sched is not None:
            sched.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"  [{tag}] step {step:3d}  batch {size:3d}  loss {loss.item():.4f}")
    return losses


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=320, help="half fat, half factorised")
    ap.add_argument("--rank", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(9)
    train, val = gauges(4096, seed=1), gauges(800, seed=2)
    half, lr = args.steps // 2, 1e-3

    # surgery at full rank must not change the function
    probe = nn.Linear(30, 18)
    same, kept = factorise(probe, 18)
    z = torch.randn(4, 30)
    assert torch.allclose(probe(z), same(z), atol=1e-5) and kept > 0.9999

    net = build()
    size0 = sum(p.numel() for p in net.parameters())
    opt = torch.optim.Adam(net.parameters(), lr=lr)
    e0 = degrees(net, *val)
    fat = fit(net, opt, train, half, lambda s: 64, gen, "fat")
    e1 = degrees(net, *val)

    opt = operate(net, opt, args.rank, lr)
    size1 = sum(p.numel() for p in net.parameters())
    in_opt = {id(p) for g in opt.param_groups for p in g["params"]}
    assert in_opt == {id(p) for p in net.parameters()}, "every weight has its optimizer"
    e2 = degrees(net, *val)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, [lambda s: 1.0, lambda s: min(1.0, (s + 1) / 20)]
    )
    thin = fit(
        net,
        opt,
        train,
        args.steps - half,
        lambda s: 64 * 2 ** min(2, 3 * s // max(1, args.steps - half)),
        gen,
        "thin",
        sched,
    )
    e3 = degrees(net, *val)
    print(
        f"weights {size0} -> {size1};  mean error {e0:.1f} deg, fat {e1:.2f}, "
        f"cut {e2:.2f}, healed {e3:.2f}"
    )
    assert size1 < 0.25 * size0
    if args.steps >= 200:
        assert sum(fat[-10:]) / 10 < 0.2 * sum(fat[:5]) / 5
        assert sum(thin[-10:]) < sum(fat[-10:]) and e3 < min(e2, 10.0)


if __name__ == "__main__":
    main()
