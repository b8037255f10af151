"""Forecast of feeder loads on a 2 x 2 grid of ranks: two replicas, each cut in two.

Within a pair the MLPs are cut by columns and rows, and between them the sequence is cut
(sequence parallelism): norms, residuals and dropout run on half the hours on each rank,
which are gathered before and reduce-scattered after a layer. The gradients of what is
replicated in a pair are partial sums, added up after backward; then all gradients are
averaged over the replicas in one flat buffer. No DDP.

    python grid_tp_dp_sequence.py --steps 60
"""

import argparse
import math
import os
import socket

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

TP, DP = 2, 2
HOURS, AHEAD, FEATURES = 48, 6, 4


class Grid:
    """Rank r is shard r % TP of replica r // TP."""

    def __init__(self):
        rank = dist.get_rank()
        self.shard, self.replica = rank % TP, rank // TP
        # every rank has to take part in making every group
        tp = [dist.new_group([d * TP + t for t in range(TP)]) for d in range(DP)]
        dp = [dist.new_group([d * TP + t for d in range(DP)]) for t in range(TP)]
        self.tp, self.dp = tp[self.replica], dp[self.shard]


def all_gather(x, grid):
    parts = [torch.empty_like(x) for _ in range(TP)]
    dist.all_gather(parts, x.contiguous(), group=grid.tp)
    return torch.cat(parts, 1)


def reduce_scatter(x, grid):
    x = x.contiguous().clone()
    dist.all_reduce(x, group=grid.tp)
    return x.chunk(TP, 1)[grid.shard].contiguous()


class GatherSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, grid):
        ctx.grid = grid
        return all_gather(x, grid)

    @staticmethod
    def backward(ctx, g):
        return reduce_scatter(g, ctx.grid), None


class ScatterSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, grid):
        ctx.grid = grid
        return reduce_scatter(x, grid)

    @staticmethod
    def backward(ctx, g):
        return all_gather(g, ctx.grid), None


class ShardedMixer(nn.Module):
    """Mixes hours (causal convolution) and features, wide channels split over the pair."""

    def __init__(self, width, grid):
        super().__init__()
        self.grid = grid
        wide = 4 * width // TP
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, wide)
        self.time = nn.Conv1d(wide, wide, 7, groups=wide)
        self.down = nn.Linear(wide, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))
        for m in (self.up, self.time, self.down):
            for p in m.parameters():
                p.sharded = True

    def forward(self, x):
        h = GatherSequence.apply(self.norm(x), self.grid)
        h = self.up(h).transpose(1, 2)
        h = F.gelu(h + self.time(F.pad(h, (6, 0)))).transpose(1, 2)
        h = ScatterSequence.apply(self.down(h), self.grid)
        return x + F.dropout(h + self.bias, 0.05, self.training)


class Forecaster(nn.Module):
    def __init__(self, grid, width=32, depth=3):
        super().__init__()
        self.grid = grid
        self.inputs = nn.Linear(FEATURES, width)
        self.blocks = nn.ModuleList(ShardedMixer(width, grid) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, AHEAD)

    def forward(self, x):
        """Takes all hours, returns forecasts for this rank's half of them."""
        x = self.inputs(x.chunk(TP, 1)[self.grid.shard])
        for block in self.blocks:
            x = block(x)
        return self.output(self.norm(x))


def series(n, gen):
    t = torch.arange(HOURS + AHEAD) + 24 * torch.rand(n, 1, generator=gen)
    day = torch.sin(2 * math.pi * t / 24)
    heat = torch.cumsum(0.15 * torch.randn(t.shape, generator=gen), 1)
    size = 0.5 + torch.rand(n, 1, generator=gen)
    load = size * (1 + 0.5 * day + 0.3 * torch.sin(4 * math.pi * t / 24)) + 0.4 * heat
    load = load + 0.03 * torch.randn(load.shape, generator=gen)
    x = torch.stack([load, heat, day, torch.cos(2 * math.pi * t / 24)], -1)[:, :HOURS]
    change = load.unfold(1, AHEAD + 1, 1)
    return x, change[..., 1:] - change[..., :1]


def sync_gradients(params, grid):
    partial = [p for p in params if not hasattr(p, "sharded")]
    flat = torch.cat([p.grad.flatten() for p in partial])
    dist.all_reduce(flat, group=grid.tp)
    for p, g in zip(partial, flat.split([p.numel() for p in partial])):
        p.grad.copy_(g.view_as(p))
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat, group=grid.dp)
    flat /= DP
    for p, g in zip(params, flat.split([p.numel() for p in params])):
        p.grad.copy_(g.view_as(p))


def half_loss(model, x, y):
    """This rank's part of the mean over all hours; a pair's two parts add up to it."""
    mine = y.chunk(TP, 1)[model.grid.shard]
    return F.huber_loss(model(x), mine, reduction="sum", delta=0.5) / y.numel()


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    loss = half_loss(model, x, y)
    dist.all_reduce(loss, group=model.grid.tp)
    model.train()
    return loss.item()


def main(rank, port, args):
    torch.set_num_threads(1)
    url = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=TP * DP)
    grid = Grid()
    torch.manual_seed(100 + grid.shard)  # each slice has its own start ...
    model = Forecaster(grid)
    params = list(model.parameters())
    for p in params:  # ... and what is replicated comes from rank 0
        if not hasattr(p, "sharded"):
            dist.broadcast(p.data, src=0)
    torch.manual_seed(200 + rank)  # dropout: other hours, other samples on every rank
    gen = torch.Generator().manual_seed(300 + grid.replica)
    held_out = series(64, torch.Generator().manual_seed(7))
    optimizer = torch.optim.RAdam(params, lr=args.lr)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * min(1.0, 2 * (1 - step / args.steps))
        x, y = series(24, gen)
        loss = half_loss(model, x, y)
        model.zero_grad()
        loss.backward()
        sync_gradients(params, grid)
        optimizer.step()
        if step % 10 == 0 or step == args.steps - 1:
            total = loss.detach().clone()
            dist.all_reduce(total)
            score = validate(model, *held_out)
            if rank == 0:
                print(f"step {step} train {total / DP:.5f} validation {score:.5f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=6e-3)
    args = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(main, (port, args), nprocs=TP * DP)
