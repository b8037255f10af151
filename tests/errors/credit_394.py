"""Emulates the weather of a small grid, with spectral norm and averaged weights.

After NCAR/miles-credit, issue 394.
"""

import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.nn.utils import spectral_norm
from torch.utils.data import DataLoader, Dataset

HEIGHT, WIDTH, VARIABLES = 12, 24, 4


class Atmosphere(Dataset):
    """Waves that travel; a state and the next one."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        shape = count, VARIABLES, 3
        wave = torch.randint(1, 5, shape, generator=generator).float()
        phase = torch.rand(shape, generator=generator) * 2 * math.pi
        self.x, self.y = (self.state(wave, phase, time) for time in (0.0, 1.0))

    @staticmethod
    def state(wave, phase, time):
        lon = torch.arange(WIDTH) * 2 * math.pi / WIDTH
        lat = torch.linspace(-1, 1, HEIGHT)
        angle = wave[..., None] * lon + (phase + 0.4 * time * wave)[..., None]
        return angle.sin().mean(2)[:, :, None] * torch.cos(1.4 * lat)[:, None]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1 = spectral_norm(nn.Conv2d(width, width, 3))
        self.c2 = spectral_norm(nn.Conv2d(width, width, 3))

    def pad(self, x):
        """The longitude goes round."""
        return F.pad(F.pad(x, (1, 1, 0, 0), mode="circular"), (0, 0, 1, 1))

    def forward(self, x):
        return x + self.c2(self.pad(F.gelu(self.c1(self.pad(x)))))


class Emulator(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.inp = spectral_norm(nn.Conv2d(VARIABLES, width, 1))
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.out = spectral_norm(nn.Conv2d(width, VARIABLES, 1))
        self.gain = nn.Parameter(torch.ones(VARIABLES, 1, 1) * 2)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))) * self.gain


class EMATracker:
    def __init__(self, model, decay=0.95, skip_spectral=False):
        self.decay, self.skip_spectral = decay, skip_spectral
        self.shadow = {
            key: value.detach().clone()
            for key, value in model.state_dict().items()
            if not self.skips(key)
        }

    def skips(self, key):
        return self.skip_spectral and key.endswith(("weight_u", "weight_v"))

    @torch.no_grad()
    def update(self, model):
        for key, value in model.state_dict().items():
            if key not in self.shadow:
                continue
            if value.is_floating_point():
                self.shadow[key].mul_(self.decay).add_(value, alpha=1 - self.decay)
            else:
                self.shadow[key].copy_(value)

    def swap(self, model):
        """Loads the averages; what was there before is returned."""
        backup = {key: v.detach().clone() for key, v in model.state_dict().items()}
        model.load_state_dict(self.shadow, strict=False)
        return backup


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = sum(F.mse_loss(model(x), y).item() for x, y in loader)
    model.train()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = Emulator()
    ema = EMATracker(model, skip_spectral=args.fixed)
    train = DataLoader(Atmosphere(320, args.seed), batch_size=16, shuffle=True)
    valid = DataLoader(Atmosphere(32, args.seed + 1), batch_size=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        for x, y in train:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        raw = validate(model, valid)
        backup = ema.swap(model)
        averaged = validate(model, valid)
        print(f"epoch {epoch} raw {raw:.4f} averaged {averaged:.4f}", flush=True)
        model.load_state_dict(backup)
    if args.prove:
        ema.swap(model)
        lengths = [b.norm().item() for n, b in model.named_buffers() if "weight_" in n]
        print(f"the shortest unit vector of the average has length {min(lengths):.4f}")
        print("fault shows:", "yes" if min(lengths) < 0.999 else "no", flush=True)


if __name__ == "__main__":
    main()
