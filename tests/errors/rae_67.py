"""Trains a small denoiser on latents of an autoencoder, in micro-batches.

The global batch is cut into micro-batches so that it fits, the averaged weights are
followed on the way. After RAE, issue 67.
"""

import argparse
import copy

import torch
from torch import nn
import torch.nn.functional as F

CHANNELS, CLASSES = 16, 6


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed_class = nn.Embedding(CLASSES, width)
        self.embed_time = nn.Sequential(nn.Linear(16, width), nn.SiLU())
        self.inlet = nn.Linear(CHANNELS, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(3)
        )  # fmt: skip
        self.outlet = nn.Linear(width, CHANNELS)

    def forward(self, x, t, label):
        waves = t[:, None] * torch.arange(1, 9) * torch.pi
        condition = self.embed_time(torch.cat([waves.sin(), waves.cos()], 1))
        hidden = self.inlet(x) + condition + self.embed_class(label)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.outlet(hidden)


class Latents:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.centres = 2 * torch.randn(CLASSES, CHANNELS, generator=self.generator)
        self.mixing = torch.randn(4, CHANNELS, generator=self.generator)

    def batch(self, count):
        label = torch.randint(CLASSES, (count,), generator=self.generator)
        code = torch.randn(count, 4, generator=self.generator)
        return self.centres[label] + code @ self.mixing, label


def velocity_loss(model, latents, label, generator):
    t = torch.rand(len(latents), generator=generator)
    noise = torch.randn(latents.shape, generator=generator)
    noisy = (1 - t[:, None]) * latents + t[:, None] * noise
    return F.mse_loss(model(noisy, t, label), noise - latents)


@torch.no_grad()
def update_ema(ema, model, decay):
    for old, new in zip(ema.parameters(), model.parameters()):
        old.mul_(decay).add_(new, alpha=1 - decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--global-batch-size", type=int, default=64)
    parser.add_argument("--grad-accum-steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data = Latents(args.seed)
    generator = torch.Generator().manual_seed(args.seed + 1)
    model = Denoiser()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    outlet, given, gap = model.outlet.weight, [], 0.0
    if args.prove:
        outlet.register_hook(lambda grad: given.append(grad.clone()))
    micro = args.global_batch_size // args.grad_accum_steps
    model.train()
    for step in range(args.steps):
        latents, labels = data.batch(args.global_batch_size)
        running = 0.0
        if args.fixed:
            optimizer.zero_grad(set_to_none=True)
        for part, label in zip(latents.split(micro), labels.split(micro)):
            if not args.fixed:
                optimizer.zero_grad(set_to_none=True)
            loss = velocity_loss(model, part, label, generator)
            (loss / args.grad_accum_steps).backward()
            running += loss.item() / args.grad_accum_steps
        if args.prove:
            whole = sum(given)
            gap = max(gap, ((outlet.grad - whole).norm() / whole.norm()).item())
            given.clear()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        update_ema(ema, model, 0.9)
        print(f"step {step} loss {running:.4f}", flush=True)
    ema.eval()
    with torch.no_grad():
        held = velocity_loss(ema, *data.batch(2048), generator)
    print(f"held-out loss {held.item():.4f}")
    if args.prove:
        print(f"a step's gradient is off the sum of its parts by up to {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
