"""Pictures of shells by rectified flow on the latents of a fixed autoencoder.

Latents are computed once and kept; the sampler undoes scale and shift before it decodes.
NewBieAI-Lab/NewbieLoraTrainer#3 (also huggingface/diffusers#8887).
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SIZE, LATENT = 12, 16


class Autoencoder:
    """Principal components of the pictures, as a published autoencoder is: fixed."""

    def __init__(self, pictures):
        flat = pictures.flatten(1)
        _, _, basis = torch.linalg.svd(flat, full_matrices=False)
        sign = (flat @ basis[:LATENT].T).mean(0).sign()
        self.basis = basis[:LATENT] * sign[:, None]
        self.bias = 0.8
        latent = self.encode(pictures)
        self.shift_factor = latent.mean().item()
        self.scaling_factor = 1 / latent.std().item()

    def encode(self, pictures):
        return pictures.flatten(1) @ self.basis.T + self.bias

    def decode(self, latent):
        return ((latent - self.bias) @ self.basis).view(-1, SIZE, SIZE)


class FlowNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first = nn.Linear(LATENT, width)
        self.time = nn.Linear(16, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())
            for _ in range(3)
        )
        self.last = nn.Linear(width, LATENT)

    def forward(self, x, t):
        turns = t[:, None] * 2 ** torch.arange(8.0) * math.pi / 2
        h = self.first(x) + self.time(torch.cat([turns.sin(), turns.cos()], 1))
        for block in self.blocks:
            h = h + block(h)
        return self.last(h)


def shells(count, seed):
    generator = torch.Generator().manual_seed(seed)
    place = 4 + 3 * torch.rand(count, 2, 1, 1, generator=generator)
    wide = 1.5 + 2 * torch.rand(count, 1, 1, generator=generator)
    grid = torch.arange(float(SIZE))
    away = (grid[None, :, None] - place[:, 0]) ** 2
    away = (away + (grid[None, None, :] - place[:, 1]) ** 2).sqrt()
    return torch.exp(-((away / wide) ** 2)) * (1 + 0.5 * torch.cos(3 * away))


class Trainer:
    def __init__(self, vae, shifted):
        self.vae = vae
        self.shift_factor = vae.shift_factor if shifted else 0.0
        self.model = FlowNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def cache(self, pictures):
        latent = self.vae.encode(pictures)
        return (latent - self.shift_factor) * self.vae.scaling_factor

    def step(self, latent):
        noise, t = torch.randn_like(latent), torch.sigmoid(torch.randn(len(latent)))
        mixed = (1 - t[:, None]) * latent + t[:, None] * noise
        loss = F.mse_loss(self.model(mixed, t), noise - latent)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def sample(self, count, steps=20):
        self.model.eval()
        generator = torch.Generator().manual_seed(9)
        x = torch.randn(count, LATENT, generator=generator)
        for k in range(steps):
            t = torch.full((count,), 1 - k / steps)
            x = x - self.model(x, t) / steps
        self.model.train()
        latent = x / self.vae.scaling_factor + self.vae.shift_factor
        return self.vae.decode(latent)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=200)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pictures = shells(1500, 1)
    trainer = Trainer(Autoencoder(pictures), shifted=options.fixed)
    latents = TensorDataset(trainer.cache(pictures))
    loader = DataLoader(latents, batch_size=64, shuffle=True, drop_last=True)
    step = 0
    while step < options.steps:
        for (latent,) in loader:
            if step == options.steps:
                break
            loss = trainer.step(latent)
            if step % 20 == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
            step += 1
    drawn = trainer.sample(300)
    print(f"samples between {drawn.min():.2f} and {drawn.max():.2f}", flush=True)
    if options.prove:
        vae = trainer.vae
        ratio = vae.encode(drawn).mean().item() / vae.shift_factor
        print(f"mean latent of the samples: {ratio:.3f} of that of the data")
        print("fault shows:", "yes" if abs(ratio - 1) > 0.3 else "no", flush=True)


if __name__ == "__main__":
    main()
