"""Denoise thin-section micrographs of basalt when only noisy frames exist.

A few pixels of each crop are replaced by neighbours and the network has to give the
recorded values back; the noise cannot be predicted, the rock can.
"""
import argparse
import contextlib
import math
import pathlib
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class Microscope:
    """Frames of crystal laths and vesicles, with signal-dependent sensor noise."""

    def __init__(self, size=48, sigma=0.2):
        self.size, self.sigma = size, sigma

    def rock(self, g):
        axis = torch.linspace(-1, 1, self.size)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        frame = torch.full((self.size, self.size), 0.3)
        for _ in range(14):
            cx, cy, turn, shade = torch.rand(4, generator=g)
            turn = turn * math.pi
            u = (x - 2 * cx + 1) * turn.cos() + (y - 2 * cy + 1) * turn.sin()
            v = (y - 2 * cy + 1) * turn.cos() - (x - 2 * cx + 1) * turn.sin()
            inside = torch.sigmoid(40 * (0.45 - u.abs())) * torch.sigmoid(
                40 * (0.09 - v.abs())
            )
            frame = frame * (1 - inside) + (0.3 + 0.7 * shade) * inside
        for _ in range(4):
            cx, cy, r = torch.rand(3, generator=g)
            d = ((x - 2 * cx + 1) ** 2 + (y - 2 * cy + 1) ** 2).sqrt()
            hole = torch.sigmoid(40 * (0.08 + 0.1 * r - d))
            frame = frame * (1 - hole) + 0.05 * hole
        return frame

    def shoot(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        clean = torch.stack([self.rock(g) for _ in range(count)])[:, None]
        std = self.sigma * (0.5 + clean)
        return clean, clean + std * torch.randn(clean.shape, generator=g), std


def hide_pixels(x, g, share=0.03, radius=2):
    """Replace a random share of the pixels by a neighbour (wrapping), never by themselves."""
    n, _, h, w = x.shape
    mask = torch.rand(x.shape, generator=g) < share
    side = 2 * radius + 1
    k = torch.randint(1, side * side, x.shape, generator=g)
    k = (k + side * side // 2) % (side * side)
    dy, dx = k // side - radius, k % side - radius
    rows = (torch.arange(h)[None, None, :, None] + dy) % h
    cols = (torch.arange(w)[None, None, None, :] + dx) % w
    donor = x.flatten(2).gather(2, (rows * w + cols).flatten(2)).view_as(x)
    return torch.where(mask, donor, x), mask


def conv(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.LeakyReLU(0.1)
    )


class LittleUNet(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.enter = conv(1, c)
        self.down = conv(c, 2 * c)
        self.deep = conv(2 * c, 2 * c)
        self.up = conv(3 * c, c)
        self.leave = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        a = self.enter(x)
        b = self.deep(self.down(F.max_pool2d(a, 2)))
        b = F.interpolate(b, scale_factor=2, mode="nearest")
        return self.leave(self.up(torch.cat([a, b], 1)))


class Denoiser:
    def __init__(self, lr, folder, half=True):
        self.net = LittleUNet()
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=lr, weight_decay=1e-5
        )
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.5, patience=2, threshold=5e-3
        )
        self.half, self.folder, self.best = half, folder, float("inf")

    def amp(self):
        if not self.half:
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def masked_sum(self, frames, g):
        hidden, mask = hide_pixels(frames, g)
        with self.amp():
            guess = self.net(hidden)
        return ((guess.float() - frames)[mask] ** 2).sum(), int(mask.sum())

    def update(self, pieces, g):
        """One step from several pieces; each hidden pixel has the same weight."""
        self.net.train()
        self.optimizer.zero_grad()
        total, pixels = 0.0, 0
        for frames in pieces:
            loss, count = self.masked_sum(frames, g)
            loss.backward()
            total, pixels = total + loss.item(), pixels + count
        for p in self.net.parameters():
            p.grad.div_(pixels)
        self.optimizer.step()
        return total, pixels

    @torch.no_grad()
    def held_out(self, frames, seed=99):
        """The same pixels are hidden every time."""
        self.net.eval()
        g = torch.Generator().manual_seed(seed)
        total, pixels = self.masked_sum(frames, g)
        score = total.item() / pixels
        self.plateau.step(score)
        if score < self.best:
            self.best = score
            torch.save(self.net.state_dict(), self.folder / "best.pt")
        return score

    @torch.no_grad()
    def clean(self, frames):
        self.net.eval()
        with self.amp():
            return self.net(frames).float()


def crops(frames, size, batch, g):
    """Random windows, turned and mirrored; one pass sees each frame once."""
    for index in torch.randperm(len(frames), generator=g).split(batch):
        r, c, turn = (int(torch.randint(0, n, (1,), generator=g)) for n in (17, 17, 4))
        part = frames[index, :, r : r + size, c : c + size]
        yield torch.rot90(part, turn, (2, 3))


def psnr(a, b):
    return -10 * torch.log10((a - b).pow(2).mean((1, 2, 3))).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pieces", type=int, default=2)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--full-precision", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)

    scope = Microscope()
    _, noisy, std = scope.shoot(72, 1)
    _, noisy_valid, _ = scope.shoot(16, 2)
    clean_test, noisy_test, _ = scope.shoot(16, 3)
    print(f"noise variance of the recordings {std.pow(2).mean():.4f}")

    folder = pathlib.Path(tempfile.mkdtemp(prefix="basalt_"))
    model = Denoiser(args.lr, folder, half=not args.full_precision)
    g = torch.Generator().manual_seed(7)
    for epoch in range(1, args.epochs + 1):
        total, pixels, waiting = 0.0, 0, []
        for piece in crops(noisy, 32, 6, g):
            waiting.append(piece)
            if len(waiting) == args.pieces:
                t, p = model.update(waiting, g)
                total, pixels, waiting = total + t, pixels + p, []
        if waiting:
            t, p = model.update(waiting, g)
            total, pixels = total + t, pixels + p
        score = model.held_out(noisy_valid)
        lr = model.optimizer.param_groups[0]["lr"]
        print(
            f"epoch {epoch:2d}  masked mse {total / pixels:.4f}  held-out {score:.4f}  lr {lr:g}"
        )

    model.net.load_state_dict(torch.load(folder / "best.pt", weights_only=True))
    before, after = psnr(noisy_test, clean_test), psnr(
        model.clean(noisy_test), clean_test
    )
    print(
        f"psnr against long exposures: recorded {before:.2f} dB, denoised {after:.2f} dB"
    )


if __name__ == "__main__":
    main()
