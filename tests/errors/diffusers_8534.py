"""Rectified flow of small pictures: coloured blobs from noise.

After huggingface/diffusers, issue 8534.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TIMESTEPS = 1000


class Blobs(Dataset):
    def __init__(self, count, seed, size=12):
        generator = torch.Generator().manual_seed(seed)
        middle = torch.rand(count, 2, 1, 1, generator=generator) * size
        side = torch.arange(size)
        y, x = torch.meshgrid(side, side, indexing="ij")
        away = (x - middle[:, :1]) ** 2 + (y - middle[:, 1:]) ** 2
        colour = torch.randn(count, 3, 1, 1, generator=generator).sign()
        self.pictures = torch.exp(-away / 8.0) * colour

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return {"pixel_values": self.pictures[index]}


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.temb = nn.Sequential(
            nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.inp = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1) for _ in range(3)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3))
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, timestep):
        frequency = torch.exp(-math.log(1e4) * torch.arange(16) / 16)
        angle = timestep[:, None].float() * frequency
        embedded = self.temb(torch.cat([angle.sin(), angle.cos()], -1))[
            :, :, None, None
        ]
        hidden = self.inp(x)
        for conv, norm in zip(self.blocks, self.norms):
            hidden = hidden + conv(F.silu(norm(hidden) + embedded))
        return self.out(hidden)


class FlowScheduler:
    def __init__(self, shift=3.0):
        sigmas = torch.linspace(1, 1 / TIMESTEPS, TIMESTEPS)
        self.sigmas = shift * sigmas / (1 + (shift - 1) * sigmas)
        self.timesteps = self.sigmas * TIMESTEPS


def sample_and_weight(scheduler, bsz, args):
    """Time steps, their noise levels, and weights in the loss."""
    logit_normal = args.weighting_scheme == "logit_normal"
    if args.fixed and logit_normal:
        u = torch.normal(mean=args.logit_mean, std=args.logit_std, size=(bsz,))
        indices = (torch.sigmoid(u) * TIMESTEPS).long().clamp(max=TIMESTEPS - 1)
    else:
        indices = torch.randint(0, TIMESTEPS, (bsz,))
    timesteps = scheduler.timesteps[indices]
    sigmas = scheduler.sigmas[indices].view(-1, 1, 1, 1)
    if args.weighting_scheme == "sigma_sqrt":
        weighting = (sigmas**-2.0).float()
    elif logit_normal and not args.fixed:
        u = torch.normal(mean=args.logit_mean, std=args.logit_std, size=(bsz,))
        weighting = torch.sigmoid(u).view(-1, 1, 1, 1)
    else:
        weighting = torch.ones_like(sigmas)
    return timesteps, sigmas, weighting


@torch.no_grad()
def validate(model, loader, scheduler):
    model.eval()
    generator = torch.Generator().manual_seed(7)
    losses = []
    for batch in loader:
        x = batch["pixel_values"]
        for index in (100, 500, 900):
            noise = torch.randn(x.shape, generator=generator)
            sigma = scheduler.sigmas[index]
            timesteps = scheduler.timesteps[index].expand(len(x))
            guess = model((1 - sigma) * x + sigma * noise, timesteps)
            losses.append(F.mse_loss(guess, noise - x))
    model.train()
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--weighting_scheme", default="logit_normal")
    parser.add_argument("--logit_mean", type=float, default=0.0)
    parser.add_argument("--logit_std", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    scheduler, model = FlowScheduler(), Denoiser()
    train = DataLoader(Blobs(640, args.seed), batch_size=32, shuffle=True)
    valid = DataLoader(Blobs(64, args.seed + 1), batch_size=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    step = 0
    for epoch in range(args.epochs):
        for batch in train:
            x = batch["pixel_values"]
            noise = torch.randn_like(x)
            timesteps, sigmas, weighting = sample_and_weight(scheduler, len(x), args)
            noisy = sigmas * noise + (1.0 - sigmas) * x
            pred, target = model(noisy, timesteps), noise - x
            off = weighting.float() * (pred.float() - target.float()) ** 2
            loss = off.reshape(len(x), -1).mean(1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        print(f"epoch {epoch} loss {validate(model, valid, scheduler):.4f}", flush=True)
    if args.prove:
        timesteps, _, weighting = sample_and_weight(scheduler, 4000, args)
        low, high = scheduler.timesteps[[750, 250]]
        middle = ((timesteps > low) & (timesteps < high)).float().mean().item()
        spread = (weighting.std() / weighting.mean()).item()
        print(f"share of the middle time steps {middle:.4f}, spread {spread:.4f}")
        print("fault shows:", "yes" if middle < 0.6 and spread > 0.1 else "no")


if __name__ == "__main__":
    main()
