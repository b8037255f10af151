"""Physics-informed surrogate for steady heat conduction on the unit square.

The surrogate maps a source field to the temperature; it never sees a solution. The
residual of k lap(T) + q = 0 comes from finite differences on the grid and the edges
are held by a boundary loss.
"""

import argparse
import logging
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("train")


class SourceFields(Dataset):
    """Sources of random sine modes plus an edge profile, with known temperature."""

    def __init__(self, count, resolution, seed, modes=3):
        g = torch.Generator().manual_seed(seed)
        axis = torch.linspace(0, 1, resolution)
        x, y = torch.meshgrid(axis, axis, indexing="ij")
        amplitude = torch.randn(count, modes, modes, generator=g)
        k = torch.arange(1, modes + 1)
        decay = 1.0 / (k[:, None] ** 2 + k[None, :] ** 2)
        sx = torch.sin(math.pi * k[:, None, None] * x)
        sy = torch.sin(math.pi * k[:, None, None] * y)
        shapes = torch.einsum("aij,bij->abij", sx, sy)
        laplace = -((math.pi * k[:, None]) ** 2 + (math.pi * k[None, :]) ** 2)
        slope = torch.randn(count, 3, generator=g)
        linear = slope[:, 0, None, None] * x + slope[:, 1, None, None] * y
        twist = slope[:, 2, None, None] * x * y
        self.temperature = torch.einsum("nab,abij->nij", amplitude * decay, shapes)
        self.temperature = self.temperature + linear + twist
        self.source = -torch.einsum(
            "nab,abij->nij", amplitude * decay * laplace, shapes
        )
        edge = torch.zeros(resolution, resolution)
        edge[0], edge[-1], edge[:, 0], edge[:, -1] = 1, 1, 1, 1
        self.edge = edge
        self.coords = torch.stack([x, y])

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        known = self.temperature[i] * self.edge
        channels = torch.stack([self.source[i] / 20, known])
        return {
            "inputs": torch.cat([channels, self.coords]),
            "source": self.source[i],
            "known": known,
            "temperature": self.temperature[i],
        }


class GradientsFiniteDifference(nn.Module):
    """Derivatives of a field on a uniform grid, up to order two."""

    def __init__(self, invar, dx, dim, order, one_sided_edges=False):
        super().__init__()
        self.invar, self.dx, self.dim, self.order = invar, dx, dim, order
        self.one_sided_edges = one_sided_edges

    def first(self, u, axis):
        before, after = torch.roll(u, 1, axis), torch.roll(u, -1, axis)
        out = (after - before) / (2 * self.dx)
        if self.one_sided_edges:
            a, b, c = [u.narrow(axis, k, 1) for k in range(3)]
            low = (-3 * a + 4 * b - c) / (2 * self.dx)
            n = u.shape[axis]
            a, b, c = [u.narrow(axis, n - 1 - k, 1) for k in range(3)]
            high = (3 * a - 4 * b + c) / (2 * self.dx)
            middle = out.narrow(axis, 1, n - 2)
            out = torch.cat([low, middle, high], axis)
        return out

    def second(self, u, axis):
        before, after = torch.roll(u, 1, axis), torch.roll(u, -1, axis)
        out = (after - 2 * u + before) / self.dx**2
        if self.one_sided_edges:
            n = u.shape[axis]
            a, b, c, d = [u.narrow(axis, k, 1) for k in range(4)]
            low = (2 * a - 5 * b + 4 * c - d) / self.dx**2
            a, b, c, d = [u.narrow(axis, n - 1 - k, 1) for k in range(4)]
            high = (2 * a - 5 * b + 4 * c - d) / self.dx**2
            middle = out.narrow(axis, 1, n - 2)
            out = torch.cat([low, middle, high], axis)
        return out

    def forward(self, fields):
        u = fields[self.invar]
        take = self.first if self.order == 1 else self.second
        names = ["x", "y", "z"][: self.dim]
        return {
            f"{self.invar}" + f"__{n}" * self.order: take(u, axis - self.dim)
            for axis, n in enumerate(names)
        }


class Diffusion:
    """Residual of steady diffusion with a source."""

    def __init__(self, conductivity=1.0):
        self.conductivity = conductivity

    def residual(self, fields):
        laplace = fields["T__x__x"] + fields["T__y__y"]
        return {"diffusion_T": self.conductivity * laplace + fields["Q"]}


class PhysicsInformer:
    def __init__(self, equations, dx, fixed):
        self.equations = equations
        self.gradients = GradientsFiniteDifference("T", dx, 2, 2, fixed)

    def forward(self, fields):
        return self.equations.residual({**fields, **self.gradients(fields)})


class SpectralMixer(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        shape = (2, width, width, modes, modes, 2)
        self.weight = nn.Parameter(torch.randn(shape) / width)
        self.local = nn.Conv2d(width, width, 3, padding=1, padding_mode="replicate")

    def forward(self, x):
        m = self.modes
        h = torch.fft.rfft2(x, norm="ortho")
        out = torch.zeros_like(h)
        w = torch.view_as_complex(self.weight)
        out[..., :m, :m] = torch.einsum("bixy,ioxy->boxy", h[..., :m, :m], w[0])
        out[..., -m:, :m] = torch.einsum("bixy,ioxy->boxy", h[..., -m:, :m], w[1])
        return torch.fft.irfft2(out, s=x.shape[-2:], norm="ortho") + self.local(x)


class FNO(nn.Module):
    def __init__(self, width=16, modes=5, layers=3):
        super().__init__()
        self.lift = nn.Conv2d(4, width, 1)
        self.mixers = nn.ModuleList(SpectralMixer(width, modes) for _ in range(layers))
        self.project = nn.Sequential(
            nn.Conv2d(width, 32, 1), nn.GELU(), nn.Conv2d(32, 1, 1)
        )

    def forward(self, inputs):
        x = self.lift(inputs)
        for mixer in self.mixers:
            x = torch.nn.functional.gelu(mixer(x)) + x
        return self.project(x).squeeze(1)


@torch.no_grad()
def validate(model, dataset):
    model.eval()
    batch = [dataset[i] for i in range(len(dataset))]
    inputs = torch.stack([b["inputs"] for b in batch])
    truth = torch.stack([b["temperature"] for b in batch])
    error = model(inputs) - truth
    relative = error.flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    band = dataset.edge.bool()
    model.train()
    return (
        relative.mean().item(),
        error[:, band].abs().mean().item(),
        error[:, ~band].abs().mean().item(),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resolution", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--physics-weight", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    train_set = SourceFields(128, args.resolution, args.seed)
    valid_set = SourceFields(32, args.resolution, args.seed + 1)
    generator = torch.Generator().manual_seed(args.seed)
    loader = DataLoader(train_set, args.batch_size, shuffle=True, generator=generator)
    model = FNO()
    informer = PhysicsInformer(Diffusion(), 1 / (args.resolution - 1), args.fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * len(loader)
    )
    edge_count = train_set.edge.sum()
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, args.epochs + 1):
            pde_total = edge_total = 0.0
            for batch in loader:
                prediction = model(batch["inputs"])
                fields = {"T": prediction, "Q": batch["source"]}
                residual = informer.forward(fields)["diffusion_T"]
                pde = residual.square().mean()
                gap = (prediction - batch["known"]) * train_set.edge
                boundary = gap.square().sum((1, 2)).mean() / edge_count
                loss = args.physics_weight * pde + boundary
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                pde_total += pde.item() / len(loader)
                edge_total += boundary.item() / len(loader)
            relative, at_edge, inside = validate(model, valid_set)
            log.info(
                "epoch %2d  loss_pde %.4g  loss_boundary %.4g  "
                "val rel_l2 %.4f  abs edge %.4f  abs inside %.4f",
                epoch,
                pde_total,
                edge_total,
                relative,
                at_edge,
                inside,
            )
        torch.save(model.state_dict(), Path(folder) / "fno.pt")


if __name__ == "__main__":
    main()
