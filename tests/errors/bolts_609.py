"""Learns features of machine vibrations from two views of each, without labels.

After lightning-bolts, issue 609.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F

LENGTH, KINDS = 96, 6


def vibrations(count, seed):
    """Kinds differ in their pitch and in the strength of the overtone."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(KINDS, (count,), generator=generator)
    pitch = (3 + 2 * (kind % 3)).float()[:, None]
    overtone = (0.3 + 0.7 * (kind // 3)).float()[:, None]
    phase = 6.28 * torch.rand(count, 2, generator=generator)
    grid = torch.linspace(0, 6.28, LENGTH)
    wave = torch.sin(pitch * grid + phase[:, :1])
    wave = wave + overtone * torch.sin(2 * pitch * grid + phase[:, 1:])
    return wave + 0.2 * torch.randn(count, LENGTH, generator=generator), kind


def view(wave):
    """A random shift, gain, noise and a gap."""
    turn = int(torch.randint(LENGTH, ()))
    wave = wave.roll(turn, 1) * (0.6 + 0.8 * torch.rand(len(wave), 1))
    wave = wave + 0.2 * torch.randn_like(wave)
    start = torch.randint(LENGTH - 16, (len(wave), 1))
    grid = torch.arange(LENGTH)
    return wave * ((grid < start) | (grid >= start + 16))


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, width, 9, 2, 4), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 9, 2, 4), nn.BatchNorm1d(width), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        )  # fmt: skip
        self.projection = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 24)
        )

    def forward(self, wave):
        return self.projection(self.body(wave[:, None]))


def nt_xent_loss(first, second, temperature, fixed, eps=1e-6):
    out = F.normalize(torch.cat([first, second]), dim=1)
    negatives = torch.exp(out @ out.T / temperature).sum(1)
    # Each row has the similarity of a vector to itself.
    itself = math.exp(1 / temperature) if fixed else math.e
    negatives = torch.clamp(negatives - itself, min=eps)
    half = len(first)
    positive = torch.exp((out[:half] * out[half:]).sum(1) / temperature)
    return -torch.log(torch.cat([positive, positive]) / negatives).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--temperature", type=float, default=0.2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    waves, _ = vibrations(1024, args.seed)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    order = torch.empty(0, dtype=torch.long)
    for step in range(args.steps):
        if len(order) < 64:
            order = torch.randperm(len(waves))
        rows, order = order[:64], order[64:]
        first, second = (model(view(waves[rows])) for _ in range(2))
        loss = nt_xent_loss(first, second, args.temperature, args.fixed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if args.prove:
        with torch.no_grad():
            loss = nt_xent_loss(first, second, args.temperature, args.fixed)
            out = F.normalize(torch.cat([first, second]), dim=1)
            alike = (out @ out.T / args.temperature).fill_diagonal_(-torch.inf)
            partner = torch.arange(128).roll(64)
            expected = F.cross_entropy(alike, partner)
        gap = abs(loss - expected).item()
        print(f"the loss {loss:.4f} differs by {gap:.4f} from the contrastive one")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
