"""Normalising flow for winds at three heights (six numbers), read as an endless stream.

Affine couplings between learnt rotations (orthogonal by parametrization), scales set by the
first batch; dequantised, as the anemometers have steps of 0.25 m/s. The optimizer is schedule
free: the weights the gradient is taken at are not the ones to be used, so that it has a
train() and an eval() of its own. Its loss is a density's, and may go below zero.
"""
import argparse
import math

import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import orthogonal
from torch.utils.data import DataLoader, IterableDataset

STEP, DIM = 0.25, 6


def winds(n, gen):
    weather = (
        torch.rand(n, generator=gen) < 0.35
    )  # breeze from the sea, or wind from the hills
    angle = torch.where(weather, 0.6, 2.9) + 0.3 * torch.randn(n, generator=gen)
    speed = torch.where(weather, 4.0, 7.0) * (0.3 * torch.randn(n, generator=gen)).exp()
    height = torch.arange(3)
    turn = angle[:, None] + 0.2 * height * weather[:, None]
    force = speed[:, None] * (1 + 0.15 * height) + 0.2 * torch.randn(
        n, 3, generator=gen
    )
    uv = torch.cat([force * turn.cos(), force * turn.sin()], 1)
    return (uv / STEP).floor() * STEP


class Stream(IterableDataset):
    def __init__(self, seed, batch):
        self.seed, self.batch = seed, batch

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        while True:
            yield winds(self.batch, gen)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift, self.log_scale = nn.Parameter(torch.zeros(dim)), nn.Parameter(
            torch.zeros(dim)
        )
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if self.training and not self.ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.log_scale.copy_(-x.std(0).log())
                self.ready.fill_(True)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()

    def inverse(self, z):
        return z * (-self.log_scale).exp() - self.shift


class Rotation(nn.Module):
    """Volume is kept: no determinant."""

    def __init__(self, dim):
        super().__init__()
        self.lin = orthogonal(nn.Linear(dim, dim, bias=False))

    def forward(self, x):
        return self.lin(x), x.new_zeros(())

    def inverse(self, z):
        return z @ self.lin.weight


class Coupling(nn.Module):
    def __init__(self, dim, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim // 2, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, dim),
        )
        nn.init.zeros_(self.net[-1].weight)  # identity at first
        nn.init.zeros_(self.net[-1].bias)

    def shape(self, a):
        log_scale, shift = self.net(a).chunk(2, -1)
        return 2 * torch.tanh(log_scale / 2), shift

    def forward(self, x):
        a, b = x.chunk(2, -1)
        log_scale, shift = self.shape(a)
        return torch.cat([a, b * log_scale.exp() + shift], -1), log_scale.sum(-1)

    def inverse(self, z):
        a, b = z.chunk(2, -1)
        log_scale, shift = self.shape(a)
        return torch.cat([a, (b - shift) * (-log_scale).exp()], -1)


class Flow(nn.Module):
    def __init__(self, depth=5):
        super().__init__()
        self.layers = nn.ModuleList(
            kind(DIM) for _ in range(depth) for kind in (ActNorm, Rotation, Coupling)
        )

    def forward(self, x):
        """-> log density of each row"""
        total = 0.0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(-1)

    def sample(self, z):
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """In training p is y, where the gradient is taken; in eval mode p is x, the running mean of z."""

    def __init__(self, params, lr, betas=(0.9, 0.99), warmup=8, eps=1e-8):
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                warmup=warmup,
                eps=eps,
                k=0,
                weights=0.0,
                top=0.0,
                training=True,
            ),
        )

    @torch.no_grad()
    def _move(self, training):
        for group in self.param_groups:
            if group["training"] != training:
                b1 = group["betas"][0]
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(self.state[p]["z"], 1 - b1 if training else 1 - 1 / b1)
                group["training"] = training

    def train(self):
        self._move(True)

    def eval(self):
        self._move(False)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            assert group["training"], "call train() first"
            b1, b2 = group["betas"]
            group["k"] += 1
            lr = group["lr"] * min(1.0, group["k"] / group["warmup"])
            group["top"] = max(group["top"], lr)
            weight = group["top"] ** 2
            group["weights"] += weight
            c = weight / group["weights"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["z"], state["square"] = p.clone(), torch.zeros_like(p)
                state["square"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                scaled = p.grad / (
                    state["square"] / (1 - b2 ** group["k"])
                ).sqrt().add_(group["eps"])
                p.lerp_(state["z"], c).add_(scaled, alpha=lr * (b1 * (1 - c) - 1))
                state["z"].sub_(scaled, alpha=lr)


def nll(flow, x):
    return -flow(x + STEP * torch.rand_like(x)).mean() / DIM


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    args = p.parse_args()
    torch.manual_seed(14)
    torch.set_num_threads(1)
    valid = winds(800, torch.Generator().manual_seed(141))
    flow = Flow()
    optimizer = ScheduleFreeAdamW(flow.parameters(), lr=0.01)
    # batches come whole out of the stream
    stream = iter(DataLoader(Stream(140, 128), batch_size=None))
    for step in range(1, args.steps + 1):
        loss = nll(flow, next(stream))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        if step % 10 == 0 or step == args.steps:
            flow.eval()
            optimizer.eval()
            with torch.no_grad(), torch.random.fork_rng():
                torch.manual_seed(0)  # the same noise whenever it is evaluated
                print(
                    f"step {step:3d} loss {loss.item():.4f} valid {nll(flow, valid).item():.4f}"
                )
            optimizer.train()
            flow.train()

    flow.eval()
    optimizer.eval()
    with torch.no_grad():
        made = flow.sample(torch.randn(800, DIM))
        made = (made / STEP).floor() * STEP  # what an anemometer would show
    for name, x in (("measured", valid), ("made", made)):
        print(
            f"{name:8s} mean " + " ".join(f"{v:6.2f}" for v in x.mean(0)),
            "std " + " ".join(f"{v:5.2f}" for v in x.std(0)),
        )


if __name__ == "__main__":
    main()
