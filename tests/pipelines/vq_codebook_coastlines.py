"""Discrete tokens for coastlines: a VQ autoencoder whose codebook follows by averages.

The codebook holds no parameters; its buffers are updated by hand in the forward pass of
training, and dead entries are put on encodings of the current batch. Straight-through
gradient, commitment loss, Lion with centralised gradients, gradient noise that
dies out. Validation in two ways: as usual, and with dropout left on (spread of the
reconstruction as a measure of doubt).
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Codebook(nn.Module):
    def __init__(self, entries, width, decay=0.95, dead=0.3):
        super().__init__()
        self.decay, self.dead = decay, dead
        self.register_buffer("embed", torch.randn(entries, width))
        self.register_buffer("count", torch.ones(entries))
        self.register_buffer("total", self.embed.clone())
        self.register_buffer("started", torch.tensor(False))

    def forward(self, z):
        """(n, length, width) -> quantised with straight-through gradient, codes, commitment"""
        flat = z.detach().flatten(0, 1)
        if self.training and not self.started:
            self.start(flat)
        code = torch.cdist(flat, self.embed).argmin(1)
        q = self.embed[code].view_as(z)
        if self.training:
            self.follow(flat, code)
        commitment = F.mse_loss(z, q)
        return z + (q - z).detach(), code.view(z.shape[:2]), commitment

    @torch.no_grad()
    def start(self, flat):
        self.embed.copy_(flat[torch.randperm(len(flat))[: len(self.embed)]])
        self.total.copy_(self.embed)
        self.started.fill_(True)

    @torch.no_grad()
    def follow(self, flat, code):
        hits = torch.zeros_like(self.count).index_add_(0, code, torch.ones(len(code)))
        sums = torch.zeros_like(self.total).index_add_(0, code, flat)
        self.count.lerp_(hits, 1 - self.decay)
        self.total.lerp_(sums, 1 - self.decay)
        dead = self.count < self.dead
        if dead.any():
            picked = flat[torch.randint(0, len(flat), (int(dead.sum()),))]
            self.count[dead] = 1.0
            self.total[dead] = picked
        self.embed.copy_(self.total / self.count[:, None])


class Autoencoder(nn.Module):
    def __init__(self, width=32, entries=48, code_width=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(2, width, 4, 2, padding=1),
            nn.GELU(),
            nn.Conv1d(width, width, 4, 2, padding=1),
            nn.GELU(),
            nn.Dropout(0.05),
            nn.Conv1d(width, code_width, 4, 2, padding=1),
        )
        self.codebook = Codebook(entries, code_width)
        self.decoder = nn.Sequential(
            nn.Conv1d(code_width, width, 3, padding=1),
            nn.GELU(),
            nn.Dropout(0.05),
            nn.ConvTranspose1d(width, width, 4, 2, padding=1),
            nn.GELU(),
            nn.ConvTranspose1d(width, width, 4, 2, padding=1),
            nn.GELU(),
            nn.ConvTranspose1d(width, 2, 4, 2, padding=1),
        )

    def forward(self, x):
        q, code, commitment = self.codebook(self.encoder(x).transpose(1, 2))
        return self.decoder(q.transpose(1, 2)), code, commitment


class Lion(torch.optim.Optimizer):
    """Sign of an interpolated momentum; gradients of matrices are centralised before."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                if g.ndim > 1:
                    g = g - g.mean(tuple(range(1, g.ndim)), keepdim=True)
                m = self.state[p].setdefault("momentum", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.lerp(g, m, b1).sign(), alpha=-group["lr"])
                m.lerp_(g, 1 - b2)


def coastlines(n, gen, points=64):
    """Walks in the plane with a rough direction and bays now and then, each centred."""
    turn = 0.25 * torch.randn(n, points, generator=gen)
    bay = torch.rand(n, points, generator=gen) < 0.06
    turn = turn + bay * 1.5 * torch.randn(n, points, generator=gen)
    start = 2 * math.pi * torch.rand(n, 1, generator=gen)
    angle = start + 1.2 * torch.tanh(torch.cumsum(turn, 1))
    x = torch.stack([angle.cos(), angle.sin()], 1).cumsum(2)
    x = x - x.mean(2, keepdim=True)
    return x / 10


@torch.no_grad()
def validate(net, x):
    net.eval()
    out, code, _ = net(x)
    error = F.mse_loss(out, x).item()
    share = torch.bincount(code.flatten(), minlength=48).float() / code.numel()
    perplexity = torch.exp(-(share * (share + 1e-9).log()).sum()).item()
    for m in net.modules():  # dropout alone; the codebook has to stay as it is
        if isinstance(m, nn.Dropout):
            m.train()
    several = torch.stack([net(x)[0] for _ in range(8)])
    net.train()
    return error, perplexity, several.std(0).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(60)
    gen = torch.Generator().manual_seed(61)
    held_out = coastlines(200, torch.Generator().manual_seed(62))
    net = Autoencoder()
    optimizer = Lion(net.parameters(), lr=args.lr, weight_decay=0.01)
    for step in range(1, args.steps + 1):
        left = 1 - (step - 1) / args.steps
        optimizer.param_groups[0]["lr"] = args.lr * left
        x = coastlines(64, gen)
        out, _, commitment = net(x)
        loss = F.mse_loss(out, x) + 0.25 * commitment
        net.zero_grad()
        loss.backward()
        for p in net.parameters():
            p.grad.add_(torch.randn_like(p), alpha=1e-4 * left)
        optimizer.step()
        if step % 20 == 0 or step == 1:
            error, perplexity, doubt = validate(net, held_out)
            print(
                f"{step:4d} loss {loss.item():.5f} validation {error:.5f} "
                f"perplexity {perplexity:.1f} doubt {doubt:.4f}"
            )


if __name__ == "__main__":
    main()
