"""Weather charts (wind as two components on a grid) sorted by what blows in them, with
attention in windows that are shifted in every other block. After the training the
net is tried on charts as they should not be: noisy, of gales twice as strong, with a
dead sensor. That it does worse there is what the table is for.

    python shifted_windows.py --steps 24
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = ("cyclone", "anticyclone", "saddle", "front")


def charts(n, seed, side=16):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(len(KINDS), (n,), generator=g)
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    centre = torch.rand(n, 2, 1, 1, generator=g) - 0.5
    x, y = x - centre[:, :1], y - centre[:, 1:]
    r = (x**2 + y**2).add(0.05)
    everything = torch.stack(
        [
            torch.cat([-y / r, x / r], 1),
            torch.cat([y / r, -x / r], 1),
            torch.cat([2 * x, -2 * y], 1),
            torch.cat([torch.tanh(6 * (x + y)), torch.tanh(6 * (x + y))], 1),
        ]
    )
    wind = everything[kind, torch.arange(n)]
    return wind + 0.3 * torch.randn(wind.shape, generator=g), kind


def to_windows(x, w):
    B, H, W, C = x.shape
    x = x.view(B, H // w, w, W // w, w, C).transpose(2, 3)
    return x.reshape(-1, w * w, C)


def from_windows(x, w, H, W):
    x = x.view(-1, H // w, W // w, w, w, x.size(-1)).transpose(2, 3)
    return x.reshape(-1, H, W, x.size(-1))


class WindowBlock(nn.Module):
    def __init__(self, dim, heads, side, window, shift):
        super().__init__()
        self.heads, self.side, self.window, self.shift = heads, side, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        wide = 2 * dim
        self.mlp = nn.Sequential(nn.Linear(dim, wide), nn.GELU(), nn.Linear(wide, dim))
        self.bias = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        at = torch.cartesian_prod(torch.arange(window), torch.arange(window))
        gap = at[:, None] - at[None] + window - 1
        self.register_buffer("gap", gap[..., 0] * (2 * window - 1) + gap[..., 1])
        mask = torch.zeros(1, 1, window**2, window**2)
        if shift:
            # what the roll brought together from opposite borders must not mix
            zone = torch.zeros(side)
            zone[-window:-shift], zone[-shift:] = 1, 2
            region = (3 * zone[:, None] + zone)[None, :, :, None]
            region = to_windows(region, window).squeeze(-1)
            apart = region[:, :, None] != region[:, None]
            mask = torch.zeros(apart.shape).masked_fill(apart, -100.0).unsqueeze(1)
        self.register_buffer("mask", mask, persistent=False)

    def attend(self, x):
        n, length, dim = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT * (dim // self.heads) ** -0.5
        scores = scores + self.bias[self.gap].permute(2, 0, 1)
        grouped = scores.view(-1, self.mask.size(0), *scores.shape[1:]) + self.mask
        out = grouped.view_as(scores).softmax(-1) @ v
        return self.proj(out.transpose(1, 2).flatten(2))

    def forward(self, x):
        y = self.norm1(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), dims=(1, 2))
        y = self.attend(to_windows(y, self.window))
        y = from_windows(y, self.window, self.side, self.side)
        if self.shift:
            y = y.roll((self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class ChartNet(nn.Module):
    def __init__(self, dim=36):
        super().__init__()
        self.patch = nn.Conv2d(2, dim, 2, stride=2)
        self.stages = nn.Sequential(
            *(WindowBlock(dim, 3, side=8, window=4, shift=s) for s in (0, 2, 0))
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(KINDS))

    def forward(self, wind):
        x = self.stages(self.patch(wind).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))


TRIALS = {
    "as it is": lambda x: x,
    "noise": lambda x: x + torch.randn_like(x),
    "gales": lambda x: 2 * x,
    "in knots": lambda x: x * 10 * 1.944,
    "dead sensor": lambda x: x * torch.tensor([0.0, 1.0]).view(2, 1, 1),
}


def main(args):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    x, y = charts(640, seed=1)
    std = x.std()
    loader = DataLoader(TensorDataset(x / std, y), 32, shuffle=True, drop_last=True)
    test_x, test_y = charts(128, seed=2)
    net = ChartNet()
    optim = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.05)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optim, args.steps)
    done = 0
    while done < args.steps:
        for wind, kind in loader:
            loss = F.cross_entropy(net(wind), kind)
            optim.zero_grad()
            loss.backward()
            optim.step()
            cosine.step()
            done += 1
            print(f"[{done}/{args.steps}] {loss.item():.4f}")
            if done == args.steps:
                break
    net.eval()
    for name, spoil in TRIALS.items():
        with torch.no_grad():
            scores = net(spoil(test_x / std))
        print(f"{name:12s} {(scores.argmax(1) == test_y).float().mean():.3f}")


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--steps", type=int, default=24)
    main(cli.parse_args())
