"""Finds weld seams in pictures of steel plates (a small U-Net, focal and Dice loss).
Pictures and masks are flipped and turned together on the whole batch. Validation uses
averaged weights which a context manager puts in and takes out again; weight decay grows
along a cosine while the rate falls.

    python weld_masks_ema_context.py --steps 120
"""

import argparse
import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn


def plates(count, seed, side=32):
    """Pictures (count, 1, side, side) with one slanted seam each, and their masks."""
    g = torch.Generator().manual_seed(seed)
    grid = torch.linspace(-1, 1, side)
    angle = math.pi * torch.rand(count, 1, 1, generator=g)
    offset = torch.rand(count, 1, 1, generator=g) - 0.5
    wave = 0.1 * torch.rand(count, 1, 1, generator=g)
    y, x = grid[:, None], grid[None, :]
    along = torch.cos(angle) * x + torch.sin(angle) * y
    across = -torch.sin(angle) * x + torch.cos(angle) * y - offset
    across = across + wave * torch.sin(8 * along)
    masks = (across.abs() < 0.12).float()
    bright = 0.6 + 0.6 * torch.rand(count, 1, 1, generator=g)
    shade = 0.5 * (torch.rand(count, 1, 1, generator=g) - 0.5) * x
    pictures = bright * masks + shade
    pictures = pictures + 0.5 * torch.randn(pictures.shape, generator=g)
    return pictures[:, None], masks[:, None]


def augment(pictures, masks):
    """One random symmetry of the square for the batch, and a gain for the pictures."""
    both = torch.cat([pictures, masks], dim=1)
    if torch.rand(()) < 0.5:
        both = both.flip(-1)
    both = torch.rot90(both, int(torch.randint(0, 4, ())), dims=(2, 3))
    gain = 0.8 + 0.4 * torch.rand(len(both), 1, 1, 1)
    return both[:, :1] * gain, both[:, 1:]


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1),
    )


class SeamUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1 = block(1, width)
        self.down2 = block(width, 2 * width)
        self.bottom = block(2 * width, 2 * width)
        self.up2 = block(4 * width, width)
        self.up1 = block(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)
        # Seams cover a tenth of the picture, and the first guess should say so.
        nn.init.constant_(self.out.bias, -2.0)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        c = F.interpolate(c, scale_factor=2, mode="nearest")
        d = self.up2(torch.cat([b, c], dim=1))
        d = F.interpolate(d, scale_factor=2, mode="nearest")
        return self.out(self.up1(torch.cat([a, d], dim=1)))


class Ema:
    """Running average of everything in a model's state."""

    def __init__(self, model, decay=0.97):
        self.decay, self.updates = decay, 0
        self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.state[name].lerp_(value, 1 - decay)
            else:
                self.state[name].copy_(value)

    @contextlib.contextmanager
    def applied_to(self, model):
        kept = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.state)
        try:
            yield model
        finally:
            model.load_state_dict(kept)


def seam_loss(logits, masks, gamma=2.0, alpha=0.75):
    ce = F.binary_cross_entropy_with_logits(logits, masks, reduction="none")
    missed = 1 - torch.exp(-ce)
    weight = alpha * masks + (1 - alpha) * (1 - masks)
    focal = (weight * missed**gamma * ce).mean()
    p = logits.sigmoid()
    overlap = (p * masks).sum((1, 2, 3))
    dice = 1 - (2 * overlap + 1) / (p.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)
    return 4 * focal + dice.mean()


@torch.inference_mode()
def intersection_over_union(model, pictures, masks):
    model.eval()
    shared = union = 0.0
    for x, y in zip(pictures.split(32), masks.split(32)):
        guess = model(x) > 0
        shared += (guess & y.bool()).sum().item()
        union += (guess | y.bool()).sum().item()
    model.train()
    return shared / max(union, 1.0)


def schedule(optimizer, step, steps, lr):
    part = 0.5 * (1 - math.cos(math.pi * step / steps))
    for group in optimizer.param_groups:
        group["lr"] = lr * (1 - 0.95 * part)
        if group["decays"]:
            group["weight_decay"] = 0.01 + 0.09 * part


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    pictures, masks = plates(480, seed=1)
    val = plates(128, seed=2)
    model = SeamUNet()
    ema = Ema(model)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "decays": True},
            {"params": vectors, "decays": False, "weight_decay": 0.0},
        ],
        lr=args.lr,
    )

    order = torch.empty(0, dtype=torch.long)
    model.train()
    for step in range(args.steps):
        if len(order) < args.batch_size:
            order = torch.randperm(len(pictures))
        rows, order = order[: args.batch_size], order[args.batch_size :]
        x, y = augment(pictures[rows], masks[rows])
        schedule(optimizer, step, args.steps, args.lr)
        loss = seam_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if (step + 1) % 30 == 0:
            raw = intersection_over_union(model, *val)
            with ema.applied_to(model):
                averaged = intersection_over_union(model, *val)
            print(f"  IoU {raw:.4f}, averaged weights {averaged:.4f}", flush=True)

    with ema.applied_to(model):
        print(f"final IoU {intersection_over_union(model, *val):.4f}")


if __name__ == "__main__":
    main()
