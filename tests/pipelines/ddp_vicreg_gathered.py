"""VICReg on orbits of small moons: two ranks, variance and covariance over the batch of both.

The gathering has a backward of its own. BatchNorm is each rank's own in training; its running
statistics are averaged before the evaluation. LARS, with biases and norms left out of decay and
adaptation. A ridge regression on the frozen features tells what they are worth.
"""
import argparse
import math
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

TIMES = 64


def moons(n, gen):
    """Distance along two axes over time -> (n, 2, TIMES), and what a probe should find out"""
    period = 0.15 + 0.35 * torch.rand(n, 1, generator=gen)
    flat = 0.3 + 0.7 * torch.rand(n, 1, generator=gen)
    phase = (
        2
        * math.pi
        * (torch.arange(TIMES) / TIMES / period + torch.rand(n, 1, generator=gen))
    )
    return torch.stack([phase.cos(), flat * phase.sin()], 1), torch.cat(
        [period, flat], 1
    )


def view(x, gen):
    """Starts later, is mirrored perhaps, and noisy; period and flatness stay."""
    start = torch.randint(0, TIMES // 4, (len(x), 1, 1), generator=gen)
    x = x.gather(2, (start + torch.arange(TIMES * 3 // 4)).expand(-1, 2, -1))
    sign = torch.randint(0, 2, (len(x), 2, 1), generator=gen) * 2 - 1
    return x * sign + 0.15 * torch.randn(x.shape, generator=gen)


class Gather(torch.autograd.Function):
    """Rows of all ranks. In backward every rank collects what all of them want of its rows."""

    @staticmethod
    def forward(ctx, x):
        rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(rows, x.contiguous())
        return torch.stack(rows)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad[dist.get_rank()]


class VICReg(nn.Module):
    def __init__(self, width=32, out=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(2, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(2),
            nn.Flatten(),
        )
        self.project = nn.Sequential(
            nn.Linear(2 * width, 64, bias=False),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Linear(64, out),
        )

    def forward(self, a, b):
        za, zb = self.project(self.encoder(a)), self.project(self.encoder(b))
        near = F.mse_loss(za, zb)  # of this rank; DDP takes the mean
        spread = cross = 0.0
        for z in (za, zb):
            z = Gather.apply(z).flatten(0, 1)
            z = z - z.mean(0)
            spread = spread + F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() / 2
            cov = z.T @ z / (len(z) - 1)
            cross = cross + (
                cov.square().sum() - cov.diagonal().square().sum()
            ) / z.size(1)
        return (
            25 * near + 25 * spread + cross,
            torch.stack([near, spread, cross]).detach(),
        )


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-6, trust=0.02):
        super().__init__(
            params,
            dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust),
        )

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                d = p.grad
                if p.ndim > 1:
                    d = d.add(p, alpha=g["weight_decay"])
                    wn, dn = p.norm(), d.norm()
                    d = d * torch.where(
                        (wn > 0) & (dn > 0), g["trust"] * wn / dn, torch.ones(())
                    )
                mu = self.state[p].setdefault("mu", torch.zeros_like(p))
                mu.mul_(g["momentum"]).add_(d)
                p.add_(mu, alpha=-g["lr"])


@torch.no_grad()
def average_statistics(model):
    for m in model.modules():
        if isinstance(m, nn.BatchNorm1d):
            for buffer in (m.running_mean, m.running_var):
                dist.all_reduce(buffer)
                buffer /= dist.get_world_size()


@torch.no_grad()
def probe(encoder, train, test):
    """-> R2 of period and flatness on the test set, by ridge regression in double precision"""
    encoder.eval()
    (x, y), (u, v) = (
        (torch.cat([encoder(s), torch.ones(len(s), 1)], 1).double(), t.double())
        for s, t in (train, test)
    )
    encoder.train()
    w = torch.linalg.solve(
        x.T @ x + 1e-3 * torch.eye(x.size(1), dtype=torch.double), x.T @ y
    )
    return 1 - ((u @ w - v).square().mean(0) / v.var(0, unbiased=False))


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(40)  # the same weights on both ranks
    mine = torch.Generator().manual_seed(400 + rank)  # but batches of their own
    probe_gen = torch.Generator().manual_seed(41)
    sets = [
        (view(x, probe_gen), y)
        for x, y in (moons(400, probe_gen), moons(200, probe_gen))
    ]

    model = DDP(VICReg(), forward_sync_buffers=False)
    optimizer = LARS(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        warm = min(1.0, (step + 1) / 10)
        optimizer.param_groups[0]["lr"] = (
            args.lr * warm * 0.5 * (1 + math.cos(math.pi * step / args.steps))
        )
        x, _ = moons(48, mine)
        loss, terms = model(view(x, mine), view(x, mine))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9 or step == args.steps - 1:
            shown = torch.cat([loss.detach().view(1), terms])
            dist.all_reduce(shown)
            shown = shown / world
            average_statistics(model)
            if (
                rank == 0
            ):  # the other is ahead meanwhile, and waits at the next gathering
                r2 = probe(model.module.encoder, *sets)
                print(
                    "step %3d loss %.4f near %.4f spread %.4f cross %.4f"
                    % (step + 1, *shown.tolist()),
                    "probe period %.3f flatness %.3f" % tuple(r2.tolist()),
                    flush=True,
                )


def start(rank, world, port, args):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    train(args)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--lr", type=float, default=0.3)
    args = p.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(start, (2, port, args), nprocs=2)
