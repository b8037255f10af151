"""Conditional flow matching on glazed tiles (16 x 16), with averaged weights.

Research code: functions and a dict of settings. The network is compiled (aot_eager), runs
channels_last, and starts as the zero function (zero-initialised gates and output). Labels
are dropped at random for guidance. The average of the weights is kept by hand, in float32,
with a decay that warms up, and is swapped in for evaluation and sampling. The saved file
holds the average in half precision.
"""

import argparse
import contextlib
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(size=16, classes=4, width=32, batch=32, lr=3e-3, ema=0.98, drop_label=0.15)
NULL = CFG["classes"]


def tiles(n, gen):
    """Stripes, checks, rings or crosses, in two random shades."""
    label = torch.randint(0, CFG["classes"], (n,), generator=gen)
    axis = torch.arange(CFG["size"]) - (CFG["size"] - 1) / 2
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    period = 4 + 4 * torch.rand(n, 1, 1, generator=gen)
    wave = 2 * math.pi / period
    patterns = torch.stack(
        [
            torch.sin(wave * x),
            torch.sin(wave * x) * torch.sin(wave * y),
            torch.cos(wave * (x**2 + y**2).sqrt()),
            torch.maximum(torch.cos(wave * x), torch.cos(wave * y)),
        ],
        1,
    )
    chosen = torch.tanh(3 * patterns[torch.arange(n), label])
    shade = 0.4 + 0.6 * torch.rand(n, 3, 1, 1, generator=gen)
    return shade * chosen[:, None], label


class Block(nn.Module):
    def __init__(self, width, cond):
        super().__init__()
        self.norm = nn.GroupNorm(8, width, affine=False)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.modulate = nn.Linear(cond, 3 * width)
        nn.init.zeros_(self.modulate.weight)
        nn.init.zeros_(self.modulate.bias)

    def forward(self, x, c):
        scale, shift, gate = self.modulate(c)[:, :, None, None].chunk(3, 1)
        h = self.norm(x) * (1 + scale) + shift
        return x + gate * self.conv2(F.silu(self.conv1(h)))


class VelocityNet(nn.Module):
    def __init__(self, width, classes, depth=3, cond=64):
        super().__init__()
        self.label = nn.Embedding(classes + 1, cond)
        self.time = nn.Sequential(nn.Linear(32, cond), nn.SiLU(), nn.Linear(cond, cond))
        self.register_buffer("freq", torch.exp(torch.linspace(0, 5, 16)))
        self.inp = nn.Conv2d(3 + 2, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width, cond) for _ in range(depth))
        self.out = nn.Conv2d(width, 3, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, label):
        angle = t[:, None] * self.freq
        c = F.silu(
            self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.label(label)
        )
        ramp = torch.linspace(-1, 1, x.size(-1)).expand(len(x), 1, x.size(-2), -1)
        h = self.inp(torch.cat([x, ramp, ramp.transpose(2, 3)], 1))
        for block in self.blocks:
            h = block(h, c)
        return self.out(F.silu(h))


def flow_loss(velocity, x1, label, x0, t):
    xt = torch.lerp(x0, x1, t[:, None, None, None])
    return F.mse_loss(velocity(xt, t, label), x1 - x0)


def init_average(net):
    return {k: p.detach().clone() for k, p in net.named_parameters()}


@torch.no_grad()
def update_average(average, net, step):
    decay = min(CFG["ema"], (1 + step) / (10 + step))
    for k, p in net.named_parameters():
        average[k].lerp_(p.float(), 1 - decay)


@contextlib.contextmanager
def averaged(net, average):
    """Puts the average in the network's place and takes it out again."""
    kept = {k: p.detach().clone() for k, p in net.named_parameters()}
    with torch.no_grad():
        for k, p in net.named_parameters():
            p.copy_(average[k])
    net.eval()
    try:
        yield
    finally:
        net.train()
        with torch.no_grad():
            for k, p in net.named_parameters():
                p.copy_(kept[k])


@torch.no_grad()
def sample(net, label, guidance=1.5, count=12, gen=None):
    x = torch.randn(len(label), 3, CFG["size"], CFG["size"], generator=gen)
    null = torch.full_like(label, NULL)
    for i in range(count):
        t = torch.full((len(label),), i / count)
        with_label, without = net(x, t, label), net(x, t, null)
        x = x + (without + guidance * (with_label - without)) / count
    return x


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(9)

    net = VelocityNet(CFG["width"], CFG["classes"]).to(
        memory_format=torch.channels_last
    )
    velocity = torch.compile(net, backend="aot_eager")
    average = init_average(net)
    opt = torch.optim.AdamW(net.parameters(), lr=CFG["lr"], betas=(0.9, 0.95))
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 15))

    vx, vl = tiles(64, torch.Generator().manual_seed(10))
    fixed = torch.Generator().manual_seed(11)
    v0 = torch.randn(vx.shape, generator=fixed)
    vt = torch.linspace(0.02, 0.98, len(vx))

    for step in range(1, args.steps + 1):
        x1, label = tiles(CFG["batch"], gen)
        x1 = x1.contiguous(memory_format=torch.channels_last)
        label = torch.where(torch.rand(len(label)) < CFG["drop_label"], NULL, label)
        x0 = torch.randn_like(x1)
        t = torch.sigmoid(torch.randn(len(x1)))
        loss = flow_loss(velocity, x1, label, x0, t)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        warm.step()
        update_average(average, net, step)
        if step % 20 == 0 or step == 1:
            with averaged(net, average), torch.no_grad():
                score = flow_loss(net, vx, vl, v0, vt)
            print(
                f"{step:4d} loss {loss.item():.4f} averaged weights {score.item():.4f}"
            )

    with averaged(net, average):
        label = torch.arange(CFG["classes"]).repeat_interleave(8)
        made = sample(net, label, gen=torch.Generator().manual_seed(12))
    print(f"samples: deviation {made.std().item():.3f}, of tiles {vx.std().item():.3f}")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "average.pt")
        torch.save({k: v.half() for k, v in average.items()}, path)
        print(f"saved {os.path.getsize(path) // 1024} KiB")


if __name__ == "__main__":
    main()
