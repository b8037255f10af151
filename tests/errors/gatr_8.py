"""A transformer predicts the drag of bodies from points on their surface.

Clouds of one batch have equally many points; batches differ. The baseline of a study has
layer norms of its own, without weights. Qualcomm-AI-research/
geometric-algebra-transformer#8.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class BaselineLayerNorm(nn.Module):
    def __init__(self, first_axis):
        super().__init__()
        self.first_axis = first_axis

    def forward(self, inputs):
        return F.layer_norm(inputs, normalized_shape=inputs.shape[self.first_axis :])


class Block(nn.Module):
    def __init__(self, width, heads, first_axis):
        super().__init__()
        self.norm = BaselineLayerNorm(first_axis)
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def attend(self, x):
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attend(self.norm(x))
        return x + self.mlp(self.norm(x))


class BaselineTransformer(nn.Module):
    def __init__(self, first_axis, width=32, layers=3):
        super().__init__()
        self.first = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Block(width, 4, first_axis) for _ in range(layers))
        self.norm = BaselineLayerNorm(first_axis)
        self.last = nn.Linear(width, 1)

    def forward(self, points):
        x = self.first(points)
        for block in self.blocks:
            x = block(x)
        return self.last(self.norm(x)).mean((1, 2))


def bodies(count, points, generator):
    """Points and normals of ellipsoids -> (count, points, 6), drag in the wind along x"""
    axes = 0.5 + torch.rand(count, 1, 3, generator=generator)
    unit = F.normalize(torch.randn(count, points, 3, generator=generator), dim=-1)
    normal = F.normalize(unit / axes, dim=-1)
    drag = axes[:, 0, 1] * axes[:, 0, 2] / axes[:, 0, 0].sqrt()
    return torch.cat([unit * axes, normal], -1), drag


@torch.no_grad()
def evaluate(model, sets):
    model.eval()
    off = sum(F.l1_loss(model(points), drag).item() for points, drag in sets)
    model.train()
    return off / len(sets)


def prove(model, points):
    """How far the norms leave single points from mean 0 and variance 1."""
    gaps = []

    def look(module, args, out):
        off = out.mean(-1).abs() + (out.var(-1, unbiased=False) - 1).abs()
        gaps.append(off.max().item())

    handles = [
        m.register_forward_hook(look)
        for m in model.modules()
        if isinstance(m, BaselineLayerNorm)
    ]
    with torch.no_grad():
        model(points)
    for handle in handles:
        handle.remove()
    print(f"normalised points are off by up to {max(gaps):.4f}", flush=True)
    print("fault shows:", "yes" if max(gaps) > 0.05 else "no", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    valid = [bodies(100, n, torch.Generator().manual_seed(n)) for n in (24, 48)]
    model = BaselineTransformer(first_axis=-1 if options.fixed else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for step in range(options.steps):
        size = (24, 32, 48)[step % 3]
        points, drag = bodies(32, size, generator)
        loss = F.smooth_l1_loss(model(points), drag, beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 30 == 29:
            print(f"validation {evaluate(model, valid):.4f}", flush=True)
    if options.prove:
        prove(model, valid[0][0])


if __name__ == "__main__":
    main()
