"""Interatomic potential for small two-species clusters, fitted to energies and forces.

Reference data come from thermostatted dynamics with a pair potential.  Training has two
stages: forces dominate at first, then the energy weight is raised and the step shortened.
"""
import argparse
import copy
import logging
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
log = logging.getLogger("neon")

SPECIES = torch.tensor([0, 0, 0, 0, 1, 1])
DEPTH = torch.tensor([[1.0, 1.3], [1.3, 0.7]])
RANGE = torch.tensor([[1.0, 0.95], [0.95, 0.85]])
OFFSET = torch.tensor([-3.0, -5.5])


def pair_energy(pos):
    n = pos.shape[-2]
    i, j = torch.triu_indices(n, n, 1)
    r = (pos[..., i, :] - pos[..., j, :]).norm(dim=-1)
    eps, sig = DEPTH[SPECIES[i], SPECIES[j]], RANGE[SPECIES[i], SPECIES[j]]
    x = torch.exp(-4.0 * (r - 1.12 * sig))
    return (eps * (x * x - 2.0 * x)).sum(-1) + OFFSET[SPECIES].sum()


def reference(pos):
    pos = pos.detach().requires_grad_(True)
    energy = pair_energy(pos)
    force = -torch.autograd.grad(energy.sum(), pos)[0]
    return energy.detach(), force


def sample_clusters(chains, keep, generator, temperature=0.18, dt=0.02):
    """Independent Langevin chains, thinned; returns [chains, keep, n, 3] and labels."""
    base = torch.tensor(
        [[0, 0, 0], [1.1, 0, 0], [0, 1.1, 0], [0, 0, 1.1], [1, 1, 0.2], [0.2, 1, 1.0]]
    )
    pos = base + 0.08 * torch.randn(chains, 6, 3, generator=generator)
    vel = torch.zeros_like(pos)
    c = math.exp(-0.8 * dt)
    frames = []
    _, force = reference(pos)
    for step in range(60 + keep * 12):
        vel = vel + 0.5 * dt * force
        pos = pos + 0.5 * dt * vel
        kick = torch.randn(pos.shape, generator=generator)
        vel = c * vel + math.sqrt((1 - c * c) * temperature) * kick
        pos = pos + 0.5 * dt * vel
        energy, force = reference(pos)
        vel = vel + 0.5 * dt * force
        if step >= 60 and step % 12 == 0:
            frames.append((pos.clone(), energy, force))
    return [torch.cat(parts) for parts in zip(*frames)]


class Radial(nn.Module):
    def __init__(self, count=16, cutoff=3.2):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0.5, cutoff, count))
        self.width = (cutoff - 0.5) / count

    def forward(self, r):
        envelope = (
            0.5 * (torch.cos(math.pi * r / self.cutoff) + 1.0) * (r < self.cutoff)
        )
        bumps = torch.exp(-(((r[..., None] - self.centres) / self.width) ** 2))
        return bumps * envelope[..., None]


class Interaction(nn.Module):
    def __init__(self, width, radial):
        super().__init__()
        self.filter = nn.Sequential(
            nn.Linear(radial, width), nn.SiLU(), nn.Linear(width, width, bias=False)
        )
        self.value = nn.Linear(width, width, bias=False)
        self.update = nn.Sequential(
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)
        )

    def forward(self, h, basis, pair_mask):
        gate = self.filter(basis) * pair_mask
        return h + self.update((gate * self.value(h)[:, None]).sum(2))


class Potential(nn.Module):
    def __init__(self, width=24, blocks=2):
        super().__init__()
        self.radial = Radial()
        self.embed = nn.Embedding(2, width)
        self.blocks = nn.ModuleList([Interaction(width, 16) for _ in range(blocks)])
        self.readout = nn.Sequential(
            nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def calibrate(self, energy, force):
        self.shift.copy_(energy.mean())
        self.scale.copy_(force.pow(2).mean().sqrt())

    def forward(self, pos):
        """Energy and forces; the graph is kept for a loss on the forces when training."""
        with torch.enable_grad():
            pos = pos.detach().requires_grad_(True)
            n = pos.shape[1]
            off = ~torch.eye(n, dtype=torch.bool)
            delta = pos[:, :, None] - pos[:, None]
            r = torch.sqrt(delta.pow(2).sum(-1) + (~off).to(pos.dtype))
            basis, mask = self.radial(r), off[None, :, :, None].to(pos.dtype)
            h = self.embed(SPECIES).expand(pos.shape[0], -1, -1)
            for block in self.blocks:
                h = block(h, basis, mask)
            energy = self.readout(h).sum((1, 2)) * self.scale + self.shift
            grad = torch.autograd.grad(energy.sum(), pos, create_graph=self.training)[0]
        return energy, -grad


class Averaged:
    def __init__(self, model, decay=0.98):
        self.model, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        for slow, fast in zip(self.model.parameters(), model.parameters()):
            slow.lerp_(fast, 1.0 - self.decay)


class Fitter:
    STAGES = {"forces": (1.0, 20.0, 6e-3), "energies": (400.0, 4.0, 1e-3)}

    def __init__(self, model, folder, switch):
        self.model, self.average = model, Averaged(model)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=6e-3, amsgrad=True)
        self.folder, self.switch = Path(folder), switch
        self.epoch, self.order = 0, torch.Generator().manual_seed(5)

    def save(self):
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "average": self.average.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.get_state(),
        }
        torch.save(state, self.folder / "last.pt")

    def restore(self, path):
        state = torch.load(path, weights_only=True)
        self.epoch = state["epoch"]
        self.model.load_state_dict(state["model"])
        self.average.model.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order.set_state(state["order"])

    def train_epoch(self, data):
        stage = "forces" if self.epoch < self.switch else "energies"
        w_energy, w_force, lr = self.STAGES[stage]
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.model.train()
        total, seen = 0.0, 0
        for pos, energy, force in DataLoader(
            data, 16, shuffle=True, generator=self.order
        ):
            guess_e, guess_f = self.model(pos)
            loss_e = ((guess_e - energy) / pos.shape[1]).pow(2).mean()
            loss = w_energy * loss_e + w_force * (guess_f - force).pow(2).mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 50.0)
            self.optimizer.step()
            self.average.update(self.model)
            total, seen = total + loss.item() * len(pos), seen + len(pos)
        self.epoch += 1
        return stage, total / seen


def assess(model, data):
    model.eval()
    sq_e = sq_f = 0.0
    for pos, energy, force in DataLoader(data, 64):
        guess_e, guess_f = model(pos)
        sq_e += ((guess_e - energy) / pos.shape[1]).pow(2).sum().item()
        sq_f += (guess_f - force).pow(2).mean((1, 2)).sum().item()
    return math.sqrt(sq_e / len(data)), math.sqrt(sq_f / len(data))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=14)
    ap.add_argument("--resume", type=str, default=None)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(3)
    splits = []
    for seed, chains in ((10, 40), (11, 10), (12, 10)):
        g = torch.Generator().manual_seed(seed)
        splits.append(TensorDataset(*sample_clusters(chains, 8, g)))
    train, valid, test = splits

    model = Potential()
    model.calibrate(train.tensors[1], train.tensors[2])
    fitter = Fitter(
        model, tempfile.mkdtemp(prefix="neon_"), math.ceil(args.epochs * 0.7)
    )
    if args.resume:
        fitter.restore(args.resume)
    while fitter.epoch < args.epochs:
        stage, loss = fitter.train_epoch(train)
        e, f = assess(fitter.average.model, valid)
        log.info(
            f"{fitter.epoch:3d} {stage:8s} loss {loss:8.4f} rmse E/atom {e:.4f} F {f:.4f}"
        )
        fitter.save()
    log.info("test rmse E/atom %.4f F %.4f", *assess(fitter.average.model, test))
    log.info("force scale of the data %.4f", model.scale.item())


if __name__ == "__main__":
    main()
