"""Trains a small diffusion model of handwriting strokes; draws samples after each epoch.

After diffusers, issue 175.
"""

import argparse

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

POINTS, STEPS = 24, 100


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.first = nn.Linear(2 * POINTS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(3)
        )  # fmt: skip
        self.last = nn.Linear(width, 2 * POINTS)

    def forward(self, stroke, timestep):
        hidden = self.first(stroke) + self.time(timestep)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.last(hidden)


class Schedule:
    def __init__(self):
        self.betas = torch.linspace(1e-3, 0.08, STEPS)
        self.kept = (1 - self.betas).cumprod(0)

    def add_noise(self, stroke, noise, timestep):
        kept = self.kept[timestep][:, None]
        return kept.sqrt() * stroke + (1 - kept).sqrt() * noise

    @torch.no_grad()
    def sample(self, model, count, generator):
        stroke = torch.randn(count, 2 * POINTS, generator=generator)
        for at in reversed(range(STEPS)):
            guess = model(stroke, torch.full((count,), at))
            scale = self.betas[at] / (1 - self.kept[at]).sqrt()
            stroke = (stroke - scale * guess) / (1 - self.betas[at]).sqrt()
            if at:
                noise = torch.randn(stroke.shape, generator=generator)
                stroke = stroke + self.betas[at].sqrt() * noise
        return stroke


def strokes(count, seed):
    """Loops of different size, turn and number of waves."""
    generator = torch.Generator().manual_seed(seed)
    size, turn, bend = torch.rand(3, count, 1, generator=generator)
    waves = torch.randint(1, 4, (count, 1), generator=generator)
    angle = torch.linspace(0, 6.2832, POINTS) + 6.2832 * turn
    radius = 0.5 + size + 0.5 * bend * torch.sin(waves * angle)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)


def roughness(samples):
    """How far points are from the middle of their neighbours."""
    line = samples.view(-1, 2, POINTS)
    return (line[..., 1:-1] - (line[..., :-2] + line[..., 2:]) / 2).norm(dim=1).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    loader = DataLoader(strokes(1024, args.seed), batch_size=64, shuffle=True)
    model, schedule = Denoiser(), Schedule()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step, drawn = 0, []
    for epoch in range(args.epochs):
        model.train()
        for stroke in loader:
            noise = torch.randn_like(stroke)
            timestep = torch.randint(STEPS, (len(stroke),))
            guess = model(schedule.add_noise(stroke, noise, timestep), timestep)
            loss = F.mse_loss(guess, noise)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            drawn.append(noise)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        model.eval()
        if args.fixed:
            generator = torch.Generator().manual_seed(0)
        else:
            generator = torch.manual_seed(0)
        rough = roughness(schedule.sample(model, 64, generator))
        print(f"epoch {epoch} roughness of samples {rough:.4f}", flush=True)
    if args.prove:
        per = len(loader)
        pairs = zip(drawn[per:], drawn[2 * per :])
        again = sum(torch.equal(one, two) for one, two in pairs)
        print(f"{again} of {step} steps had the noise of the step an epoch before")
        print("fault shows:", "yes" if again else "no", flush=True)


if __name__ == "__main__":
    main()
