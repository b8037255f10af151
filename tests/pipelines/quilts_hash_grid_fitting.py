"""Store a quilt photograph in a multiresolution hash grid and a tiny network.

One model per picture: the coordinates go in, the colour comes out.  The packed model is
written in half precision and the picture is rebuilt from that file.
"""
import argparse
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

PRIMES = (1, 2654435761)


def sew_quilt(size, seed):
    """Patches with stripes, dots and rings, plus stitches along the seams."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    y, x = (y + 0.5) / size, (x + 0.5) / size
    patch, cells = torch.zeros(size, size, 3), 5
    for r in range(cells):
        for c in range(cells):
            inside = ((y * cells).long() == r) & ((x * cells).long() == c)
            u, v = x * cells - c - 0.5, y * cells - r - 0.5
            kind = int(torch.randint(0, 3, (1,), generator=g))
            freq = 1 + 1.5 * torch.rand(1, generator=g)
            if kind == 0:
                field = torch.sin(6.28 * freq * (u + v))
            elif kind == 1:
                field = torch.sin(6.28 * freq * u) * torch.sin(6.28 * freq * v)
            else:
                field = torch.cos(6.28 * freq * (u * u + v * v).sqrt())
            mix = torch.sigmoid(4 * field)[..., None]
            light, dark = torch.rand(2, 3, generator=g)
            patch = torch.where(
                inside[..., None], mix * light + (1 - mix) * dark, patch
            )
    seam = torch.minimum((x * cells + 0.5).frac(), (y * cells + 0.5).frac())
    return torch.where(((seam - 0.5).abs() < 0.04)[..., None], patch * 0.4, patch)


def look_up(picture, uv):
    grid = (uv * 2 - 1)[None, None]
    image = picture.permute(2, 0, 1)[None]
    out = F.grid_sample(image, grid, align_corners=False, padding_mode="border")
    return out[0, :, 0].T


class HashLevel(nn.Module):
    def __init__(self, resolution, rows, width):
        super().__init__()
        self.resolution, self.rows = resolution, rows
        self.dense = (resolution + 1) ** 2 <= rows
        self.table = nn.Embedding(rows, width, sparse=True)
        nn.init.uniform_(self.table.weight, -1e-4, 1e-4)

    def row_of(self, corner):
        if self.dense:
            return corner[..., 0] + corner[..., 1] * (self.resolution + 1)
        return ((corner[..., 0] * PRIMES[0]) ^ (corner[..., 1] * PRIMES[1])) % self.rows

    def forward(self, uv):
        where = uv * self.resolution
        base = where.floor().clamp(max=self.resolution - 1)
        t = where - base
        out = 0.0
        for dx in (0, 1):
            for dy in (0, 1):
                step = torch.tensor([dx, dy])
                weight = torch.where(step.bool(), t, 1 - t).prod(-1, keepdim=True)
                out = out + weight * self.table(self.row_of(base.long() + step))
        return out


class Picture(nn.Module):
    def __init__(self, levels=7, rows=1024, width=2, coarse=8, growth=1.5):
        super().__init__()
        sizes = [int(coarse * growth**k) for k in range(levels)]
        self.levels = nn.ModuleList([HashLevel(s, rows, width) for s in sizes])
        self.head = nn.Sequential(
            nn.Linear(levels * width, 32),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.ReLU(),
            nn.Linear(32, 3),
        )

    def forward(self, uv):
        return self.head(torch.cat([level(uv) for level in self.levels], dim=-1))


def stratified(batch, generator):
    """One jittered point in each cell of a square lattice."""
    side = int(batch**0.5)
    cell = torch.stack(
        torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy"), dim=-1
    )
    return (cell.view(-1, 2) + torch.rand(side * side, 2, generator=generator)) / side


def relative_l2(guess, target):
    return ((guess - target) ** 2 / (guess.detach() ** 2 + 0.01)).mean()


@torch.no_grad()
def render(model, size):
    axis = (torch.arange(size) + 0.5) / size
    v, u = torch.meshgrid(axis, axis, indexing="ij")
    uv = torch.stack([u, v], -1).view(-1, 2)
    rows = [model(part).clamp(0, 1) for part in uv.split(4096)]
    return torch.cat(rows).view(size, size, 3)


def psnr(a, b):
    return -10 * torch.log10(F.mse_loss(a, b)).item()


def pack(model, path):
    torch.save({k: v.half() for k, v in model.state_dict().items()}, path)
    return os.path.getsize(path)


def unpack(path):
    model = Picture()
    stored = torch.load(path, weights_only=True)
    model.load_state_dict({k: v.float() for k, v in stored.items()})
    return model.eval()


def fit(model, picture, steps, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    tables = [level.table.weight for level in model.levels]
    sparse = torch.optim.SparseAdam(tables, lr=2e-2, betas=(0.9, 0.99), eps=1e-15)
    dense = torch.optim.Adam(
        model.head.parameters(),
        lr=6e-3,
        betas=(0.9, 0.99),
        eps=1e-15,
        weight_decay=1e-6,
    )
    hold = steps // 2
    fade = lambda t: 1.0 if t < hold else 0.03 ** ((t - hold) / max(1, steps - hold))
    plans = [torch.optim.lr_scheduler.LambdaLR(o, fade) for o in (sparse, dense)]
    size = picture.shape[0]
    for step in range(1, steps + 1):
        uv = stratified(batch, generator)
        loss = relative_l2(model(uv), look_up(picture, uv))
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        for plan in plans:
            plan.step()
        if step % max(1, steps // 4) == 0:
            quality = psnr(render(model, size), picture)
            touched = sum(len(t.grad.coalesce().indices()[0]) for t in tables)
            print(
                f"{step:5d}  loss {loss.item():.4f}  psnr {quality:.2f} dB  rows {touched}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=260)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    picture = sew_quilt(args.size, args.seed)
    model = Picture()
    fit(model, picture, args.steps, args.batch, args.seed + 1)

    path = os.path.join(tempfile.mkdtemp(prefix="quilts_"), "quilt.pt")
    size = pack(model, path)
    rebuilt = render(unpack(path), args.size)
    print(f"packed {size} bytes, rebuilt psnr {psnr(rebuilt, picture):.2f} dB")


if __name__ == "__main__":
    main()
