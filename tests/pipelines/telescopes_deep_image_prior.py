"""Restore one damaged telescope plate with an untrained network (deep image prior).

There is no data set: one observation with dead pixels and noise, a convolutional hourglass and a fixed
random input.  The network would fit the noise if left alone, so fitting stops when the windowed moving
variance of the averaged plate has stopped falling ("Early stopping for deep image prior"); the
clean plate is used for the report only.  BatchNorm works on a batch of one plate, so its statistics are
spatial, and the network stays in training mode for the outputs too: running averages are not kept.
"""
import argparse
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F

SIZE = 48


def make_plate(gen):
    """A spiral-ish galaxy, a few stars, a smooth background; values in [0, 1]."""
    yy, xx = torch.meshgrid(
        torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij"
    )
    r, phi = torch.sqrt(xx**2 + yy**2), torch.atan2(yy, xx)
    plate = (
        0.15
        + 0.05 * xx
        + 0.5 * torch.exp(-3.5 * r) * (1 + 0.7 * torch.cos(2 * phi + 7 * r))
    )
    for _ in range(7):
        cx, cy = (torch.rand(2, generator=gen) * 1.8 - 0.9).tolist()
        plate = plate + 0.45 * torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.005)
    return plate.clamp(0, 1)[None, None]


def damage(clean, gen, dead=0.4, sigma=0.08):
    mask = (torch.rand(clean.shape, generator=gen) > dead).float()
    return (clean + sigma * torch.randn(clean.shape, generator=gen)) * mask, mask


def block(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(
            cin, cout, 3, stride=stride, padding=1, padding_mode="reflect", bias=False
        ),
        nn.BatchNorm2d(cout, track_running_stats=False),
        nn.LeakyReLU(0.2),
    )


class Hourglass(nn.Module):
    def __init__(self, depth_in=8, width=20):
        super().__init__()
        self.down = nn.ModuleList(
            [block(depth_in, width, 2), block(width, width, 2), block(width, width, 2)]
        )
        self.skip = nn.ModuleList(
            [nn.Conv2d(depth_in, 4, 1), nn.Conv2d(width, 4, 1), nn.Conv2d(width, 4, 1)]
        )
        self.up = nn.ModuleList([block(width + 4, width) for _ in range(3)])
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, z):
        skips = []
        for down, skip in zip(self.down, self.skip):
            skips.append(skip(z))
            z = down(z)
        for up in self.up:
            side = skips.pop()
            z = F.interpolate(
                z, size=side.shape[-2:], mode="bilinear", align_corners=False
            )
            z = up(torch.cat([z, side], 1))
        return torch.sigmoid(self.out(z))


class MovingVarianceStop:
    """Stop once the variance of the last `window` averaged plates has not made a new minimum for `patience` steps."""

    def __init__(self, window, patience, burn_in):
        self.outputs, self.window = deque(maxlen=window), window
        self.patience, self.burn_in = patience, burn_in
        self.best, self.best_step, self.best_output = float("inf"), 0, None

    def update(self, step, restored):
        self.outputs.append(restored)
        if len(self.outputs) < self.window or step < self.burn_in:
            return False
        variance = torch.stack(tuple(self.outputs)).var(0, unbiased=False).mean().item()
        if variance < self.best:
            self.best, self.best_step, self.best_output = (
                variance,
                step,
                restored.clone(),
            )
        return step - self.best_step >= self.patience


def psnr(a, b):
    return -10 * torch.log10((a - b).pow(2).mean()).item()


def fill_with_neighbours(seen, mask, radius=2):
    """Baseline: normalised box average of the live pixels around each dead one."""
    k = 2 * radius + 1
    kernel = torch.ones(1, 1, k, k)
    total = F.conv2d(F.pad(seen, [radius] * 4, mode="reflect"), kernel)
    count = F.conv2d(F.pad(mask, [radius] * 4, mode="reflect"), kernel).clamp_min(1)
    return seen * mask + (1 - mask) * total / count


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps",
        type=int,
        default=420,
        help="upper bound, the stopper usually ends earlier",
    )
    ap.add_argument(
        "--jitter",
        type=float,
        default=0.03,
        help="std of the noise added to the fixed input",
    )
    ap.add_argument("--seed", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)

    clean = make_plate(gen)
    seen, mask = damage(clean, gen)
    net = Hourglass()
    z = (
        torch.rand(1, 8, SIZE, SIZE, generator=gen) * 0.1
    )  # fixed for the whole fit, never optimised
    z_sum = z.sum().item()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    stopper = MovingVarianceStop(window=40, patience=60, burn_in=60)

    restored, losses = None, []
    for step in range(1, args.steps + 1):
        # Jitter regularises the map from input to plate; a new draw each step, around the same z.
        out = net(z + args.jitter * torch.randn(z.shape, generator=gen))
        loss = ((out - seen) * mask).pow(
            2
        ).sum() / mask.sum()  # dead pixels carry no error
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())

        shown = out.detach()
        restored = shown if restored is None else 0.95 * restored + 0.05 * shown
        if step % 60 == 0:
            print(
                f"step {step:4d} masked mse {losses[-1]:.5f} psnr {psnr(restored, clean):.2f} dB (report only)"
            )
        if stopper.update(step, restored):
            print(f"stopped at {step}, plate of step {stopper.best_step}")
            break

    answer = stopper.best_output if stopper.best_output is not None else restored
    assert z.sum().item() == z_sum, "the input code must not move"
    assert not any(
        b.numel() for n, b in net.named_buffers()
    ), "no running statistics are kept"
    got, base = psnr(answer, clean), psnr(fill_with_neighbours(seen, mask), clean)
    print(
        f"psnr: damaged {psnr(seen, clean):.2f} dB, neighbour filling {base:.2f} dB, deep prior {got:.2f} dB"
    )
    if args.steps >= 200:
        assert losses[-1] < 0.3 * losses[0]
        assert got > base + 1.0


if __name__ == "__main__":
    main()
