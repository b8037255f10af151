"""Contrastive learning of pairs, as in CLIP: a spectrum and the formula it belongs to
go through towers of their own, the other pairs of the batch are the negatives, the
temperature is learnt (and bounded). Tested by retrieval among unseen pairs.

    python clip_molecules.py --steps 120
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

ATOMS, BINS = 10, 80


def pairs(count, generator):
    """A formula counts its atoms; each atom has peaks of its own in the spectrum."""
    world = torch.Generator().manual_seed(1)
    place = torch.randint(4, BINS - 4, (ATOMS, 4), generator=world)
    peaks = torch.zeros(ATOMS, BINS)
    for delta, height in ((-1, 0.5), (0, 1.0), (1, 0.5)):
        peaks.scatter_add_(1, place + delta, torch.full(place.shape, height))
    formula = torch.randint(0, 4, (count, ATOMS), generator=generator)
    formula *= torch.rand(count, ATOMS, generator=generator) < 0.6
    spectrum = formula.float() @ peaks
    noise = 0.3 * torch.randn(spectrum.shape, generator=generator)
    return torch.log1p((spectrum + noise).clamp(min=0)), formula


class SpectrumTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv1d(1, 12, 7, stride=2, padding=3)
        self.flat = nn.Linear(12 * BINS // 2, 96)
        self.project = nn.Linear(96, dim, bias=False)

    def forward(self, spectrum):
        h = F.gelu(self.conv(spectrum.unsqueeze(1))).flatten(1)
        return self.project(F.gelu(self.flat(h)))


class FormulaTower(nn.Module):
    """The sum of a vector for each count of each atom, then a small net."""

    def __init__(self, dim, width=64):
        super().__init__()
        self.counts = nn.Embedding(ATOMS * 4, width)
        self.register_buffer("offset", 4 * torch.arange(ATOMS))
        self.norm = nn.LayerNorm(width)
        self.project = nn.Sequential(
            nn.Linear(width, 96), nn.GELU(), nn.Linear(96, dim, bias=False)
        )

    def forward(self, formula):
        return self.project(self.norm(self.counts(formula + self.offset).sum(dim=1)))


class Contrastive(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.spectra, self.formulas = SpectrumTower(dim), FormulaTower(dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, spectrum, formula):
        s = F.normalize(self.spectra(spectrum), dim=-1)
        f = F.normalize(self.formulas(formula), dim=-1)
        return self.log_scale.exp() * s @ f.T


def clip_loss(logits):
    labels = torch.arange(len(logits))
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels))


@torch.no_grad()
def recall(model, spectrum, formula, k):
    model.eval()
    top = model(spectrum, formula).topk(k, dim=1).indices
    model.train()
    return (top == torch.arange(len(top))[:, None]).any(1).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(33)
    generator = torch.Generator().manual_seed(34)

    model = Contrastive()
    towers = [p for n, p in model.named_parameters() if n != "log_scale"]
    optimizer = torch.optim.AdamW(
        [
            {"params": towers, "weight_decay": 0.02},
            {"params": [model.log_scale], "weight_decay": 0.0, "lr": 5 * args.lr},
        ],
        lr=args.lr,
        betas=(0.9, 0.98),
    )
    unseen = pairs(200, generator)
    for step in range(args.steps):
        loss = clip_loss(model(*pairs(args.batch_size, generator)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.log_scale.clamp_(0, math.log(100))
        if step % 12 == 0 or step == args.steps - 1:
            scale = model.log_scale.exp().item()
            print(f"step {step} loss {loss.item():.6f} scale {scale:.3f}", flush=True)
    print(
        f"recall@1 {recall(model, *unseen, 1):.3f} @5 {recall(model, *unseen, 5):.3f}"
    )


if __name__ == "__main__":
    main()
