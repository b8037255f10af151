"""Trains a small conditional diffusion model with gradient accumulation.

A linear warm-up and a linear descent of the rate, micro-batches as in the usual
training scripts. After diffusers, issue 4387.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIDE, KINDS, TIMES = 12, 4, 200


class DDPMScheduler:
    def __init__(self):
        betas = torch.linspace(1e-3, 0.03, TIMES)
        self.alphas_cumprod = torch.cumprod(1 - betas, 0)

    def add_noise(self, clean, noise, times):
        kept = self.alphas_cumprod[times].view(-1, 1, 1, 1)
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise


class NoiseNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inlet = nn.Conv2d(1, width, 3, padding=1)
        self.label = nn.Embedding(KINDS, width)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU())
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.outlet = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, noisy, times, label):
        waves = times[:, None] / TIMES * 2.0 ** torch.arange(8)
        condition = self.time(torch.cat([waves.sin(), waves.cos()], 1))
        condition = (condition + self.label(label))[:, :, None, None]
        first = F.silu(self.inlet(noisy) + condition)
        deep = F.silu(self.down(first))
        deep = deep + F.silu(self.middle(deep))
        up = self.up(F.interpolate(deep, scale_factor=2.0))
        return self.outlet(F.silu(self.norm(up + first)))


def get_scheduler(optimizer, num_warmup_steps, num_training_steps):
    def factor(step):
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        left = num_training_steps - step
        return max(0.0, left / (num_training_steps - num_warmup_steps))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def drawings(count, seed):
    """Bars of four directions, as bright strokes on a dark ground."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(KINDS, (count,), generator=generator)
    place = torch.arange(float(SIDE)) - (SIDE - 1) / 2
    y, x = torch.meshgrid(place, place, indexing="ij")
    angle = (math.pi / KINDS * label)[:, None, None]
    shift = 3 * torch.randn(count, 1, 1, generator=generator).clamp(-1, 1)
    distance = angle.cos() * x + angle.sin() * y - shift
    return TensorDataset((2 * torch.exp(-(distance**2) / 2) - 1)[:, None], label)


def noise_loss(model, noise_scheduler, clean, label, generator=None):
    noise = torch.randn(clean.shape, generator=generator)
    times = torch.randint(TIMES, (len(clean),), generator=generator)
    noisy = noise_scheduler.add_noise(clean, noise, times)
    return F.mse_loss(model(noisy, times, label), noise)


@torch.no_grad()
def validate(model, noise_scheduler, data):
    model.eval()
    generator = torch.Generator().manual_seed(5)
    return noise_loss(model, noise_scheduler, *data.tensors, generator).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--gradient-accumulation-steps", type=int, default=4)
    parser.add_argument("--lr-warmup-steps", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    accumulate = args.gradient_accumulation_steps
    train = drawings(768, args.seed)
    loader = DataLoader(train, batch_size=16, shuffle=True)
    valid = drawings(256, args.seed + 1)
    model, noise_scheduler = NoiseNet(), DDPMScheduler()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    max_train_steps = args.epochs * (len(loader) // accumulate)
    stretch = 1 if args.fixed else accumulate
    lr_scheduler = get_scheduler(
        optimizer,
        num_warmup_steps=args.lr_warmup_steps * stretch,
        num_training_steps=max_train_steps * stretch,
    )
    step, running, rates = 0, 0.0, []
    for epoch in range(args.epochs):
        model.train()
        for index, (clean, label) in enumerate(loader):
            loss = noise_loss(model, noise_scheduler, clean, label)
            (loss / accumulate).backward()
            running += loss.item() / accumulate
            if (index + 1) % accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                rates.append(lr_scheduler.get_last_lr()[0])
                lr_scheduler.step()
                optimizer.zero_grad()
                print(f"step {step} loss {running:.4f}", flush=True)
                step, running = step + 1, 0.0
        held = validate(model, noise_scheduler, valid)
        print(f"epoch {epoch} validation {held:.4f}", flush=True)
    if args.prove:
        print(f"rates: first {rates[0]:.6f} last {rates[-1]:.6f}")
        print("fault shows:", "yes" if rates[-1] > 0.1 * args.lr else "no", flush=True)


if __name__ == "__main__":
    main()
