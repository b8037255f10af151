"""Outlines of amphorae from a small adversarial pair.

The generator answers to a critic that has been allowed to think a few moves ahead;
afterwards the critic goes back to where it was and makes its own single move.
"""
import argparse
import copy
import math
import pathlib
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

POINTS = 32
TYPES = 5


def outlines(count, seed):
    """Radius along the height of the vessel; five workshops, each with its own profile."""
    g = torch.Generator().manual_seed(seed)
    h = torch.linspace(0, 1, POINTS)
    kind = torch.randint(0, TYPES, (count,), generator=g)
    belly = torch.tensor([0.30, 0.45, 0.62, 0.50, 0.38])[kind][:, None]
    girth = torch.tensor([0.55, 0.85, 0.60, 0.35, 0.75])[kind][:, None]
    neck = torch.tensor([0.15, 0.22, 0.12, 0.25, 0.35])[kind][:, None]
    jitter = torch.randn(count, 3, generator=g)
    belly = belly + 0.015 * jitter[:, :1]
    girth = girth * (1 + 0.05 * jitter[:, 1:2])
    neck = neck * (1 + 0.06 * jitter[:, 2:])
    body = girth * torch.exp(-(((h - belly) / 0.22) ** 2))
    lip = neck * torch.sigmoid((h - 0.72) * 25)
    return 2.0 * (body + lip) - 0.8, kind


class Potter(nn.Module):
    def __init__(self, latent=12, width=96):
        super().__init__()
        self.latent = latent
        self.layers = nn.ModuleList(
            [
                nn.Linear(latent, width),
                nn.Linear(width, width),
                nn.Linear(width, POINTS),
            ]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(width), nn.BatchNorm1d(width)])

    def forward(self, z):
        for layer, norm in zip(self.layers, self.norms):
            z = F.relu(norm(layer(z)))
        return self.layers[-1](z)


class Critic(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(POINTS, width),
            nn.LeakyReLU(0.2),
            nn.Linear(width, width),
            nn.LeakyReLU(0.2),
        )
        self.verdict = nn.Linear(width + 1, 1)

    def forward(self, x):
        h = self.body(x)
        spread = h.std(0).mean().expand(len(h), 1)
        return self.verdict(torch.cat([h, spread], 1)).squeeze(1)


class Workshop:
    def __init__(self, real, args):
        self.real, self.args = real, args
        self.potter, self.critic = Potter(), Critic()
        self.shelf = copy.deepcopy(self.potter).requires_grad_(False).eval()
        self.opt_p = torch.optim.Adam(
            self.potter.parameters(), lr=1e-3, betas=(0.5, 0.99)
        )
        self.opt_c = torch.optim.Adam(
            self.critic.parameters(), lr=1e-3, betas=(0.5, 0.99)
        )
        self.rng = torch.Generator().manual_seed(args.seed + 1)

    def clay(self):
        return torch.randn(self.args.batch, self.potter.latent, generator=self.rng)

    def some_real(self):
        pick = torch.randint(0, len(self.real), (self.args.batch,), generator=self.rng)
        return self.real[pick]

    def critic_move(self):
        with torch.no_grad():
            fake = self.potter(self.clay())
        real = self.some_real()
        loss = (
            F.softplus(-self.critic(real)).mean() + F.softplus(self.critic(fake)).mean()
        )
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        return loss.item()

    def potter_move(self):
        self.critic.requires_grad_(False)
        loss = F.softplus(-self.critic(self.potter(self.clay()))).mean()
        self.opt_p.zero_grad()
        loss.backward()
        self.opt_p.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            for kept, now in zip(self.shelf.parameters(), self.potter.parameters()):
                kept.lerp_(now, 0.02)
            for kept, now in zip(self.shelf.buffers(), self.potter.buffers()):
                kept.copy_(now)
        return loss.item()

    def turn(self):
        mark = copy.deepcopy((self.critic.state_dict(), self.opt_c.state_dict()))
        for _ in range(self.args.ahead):
            self.critic_move()
        loss_p = self.potter_move()
        self.critic.load_state_dict(mark[0])
        self.opt_c.load_state_dict(mark[1])
        return self.critic_move(), loss_p

    @torch.no_grad()
    def pots(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        return self.shelf(torch.randn(count, self.potter.latent, generator=g))


def kernel_gap(a, b, widths=(1.0, 2.0, 4.0)):
    """Unbiased squared maximum mean discrepancy."""

    def mean_kernel(x, y, same):
        d = torch.cdist(x, y).pow(2)
        k = sum(torch.exp(-d / (2 * w * w)) for w in widths)
        if same:
            return (k.sum() - k.diagonal().sum()) / (len(x) * (len(x) - 1))
        return k.mean()

    return (mean_kernel(a, a, True) + mean_kernel(b, b, True)).item() - 2 * mean_kernel(
        a, b, False
    ).item()


def census(pots, real, kind):
    """Share of generated vessels closest to each workshop's mean outline."""
    centres = torch.stack([real[kind == k].mean(0) for k in range(TYPES)])
    nearest = torch.cdist(pots, centres).argmin(1)
    return (torch.bincount(nearest, minlength=TYPES).float() / len(pots)).tolist()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=420)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--ahead", type=int, default=3)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    train, kinds = outlines(3000, args.seed)
    held, _ = outlines(400, args.seed + 50)
    shop = Workshop(train, args)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="amphorae_"))
    every = max(1, math.ceil(args.steps / 6))
    for step in range(1, args.steps + 1):
        loss_c, loss_p = shop.turn()
        if step % every == 0 or step == args.steps:
            gap = kernel_gap(shop.pots(400, 5), held)
            print(
                f"{step:5d} critic {loss_c:.3f} potter {loss_p:.3f} mmd2 {gap:.4f}",
                flush=True,
            )
            torch.save(
                {
                    "step": step,
                    "potter": shop.potter.state_dict(),
                    "shelf": shop.shelf.state_dict(),
                    "critic": shop.critic.state_dict(),
                    "opt_p": shop.opt_p.state_dict(),
                    "opt_c": shop.opt_c.state_dict(),
                    "rng": shop.rng.get_state(),
                },
                folder / "last.pt",
            )
    again, _ = outlines(400, args.seed + 51)
    print(f"two real sets apart: {kernel_gap(again, held):.4f}")
    shares = census(shop.pots(1000, 6), train, kinds)
    print("workshop shares: " + "  ".join(f"{s:.2f}" for s in shares))


if __name__ == "__main__":
    main()
