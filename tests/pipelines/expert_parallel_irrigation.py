"""Forecasts the water that fields need with a mixture of four experts, two on each of
two ranks. Each row goes to the expert that its gate prefers: rows travel by all_to_all
in an autograd function and come back the same way. Gradients of the shared part are
averaged over the ranks; experts belong to one rank and are only rescaled.

    python expert_parallel_irrigation.py --steps 150
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

FEATURES, REGIMES = 10, 4


class Exchange(torch.autograd.Function):
    """Sends send[r] rows to rank r and takes take[r] rows from it."""

    @staticmethod
    def forward(ctx, rows, send, take):
        ctx.send, ctx.take = send, take
        got = rows.new_empty(sum(take), rows.shape[1])
        dist.all_to_all_single(got, rows.contiguous(), take, send)
        return got

    @staticmethod
    def backward(ctx, grad):
        back = grad.new_empty(sum(ctx.send), grad.shape[1])
        dist.all_to_all_single(back, grad.contiguous(), ctx.send, ctx.take)
        return back, None, None


class ParallelExperts(nn.Module):
    def __init__(self, width, hidden, experts, rank, world):
        super().__init__()
        self.world, self.each = world, experts // world
        self.gate = nn.Linear(width, experts, bias=False)
        self.norm = nn.LayerNorm(width)
        # Every rank builds all experts from the same seed and keeps its own.
        everyone = [
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
            for _ in range(experts)
        ]
        self.experts = nn.ModuleList(everyone[rank * self.each :][: self.each])

    def forward(self, x):
        probabilities = self.gate(x).softmax(1)
        weight, choice = probabilities.max(1)
        order = choice.argsort(stable=True)
        counts = torch.bincount(choice, minlength=self.world * self.each)
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts)
        send = counts.view(self.world, self.each).sum(1).tolist()
        arriving = arriving.view(self.world, self.each)
        take = arriving.sum(1).tolist()

        rows = Exchange.apply(self.norm(x)[order], send, take)
        # Rows lie by sender, then by expert.
        parts = rows.split(arriving.flatten().tolist())
        done = [self.experts[i % self.each](part) for i, part in enumerate(parts)]
        back = Exchange.apply(torch.cat(done), take, send)
        out = torch.zeros_like(x).index_copy(0, order, back)

        share = counts.float() / len(x)
        balance = len(share) * (share * probabilities.mean(0)).sum()
        return x + weight.unsqueeze(1) * out, balance, share


class WaterNet(nn.Module):
    def __init__(self, rank, world, width=32):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU())
        self.moe = ParallelExperts(width, 64, 4, rank, world)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        x, balance, share = self.moe(self.stem(x))
        return self.out(x).squeeze(1), balance, share


def fields(count, g):
    """Four kinds of soil, each with a rule of its own, plainly seen in the inputs."""
    rule = torch.Generator().manual_seed(99)
    slopes = torch.randn(REGIMES, FEATURES - REGIMES, generator=rule)
    soil = torch.randint(0, REGIMES, (count,), generator=g)
    weather = torch.randn(count, FEATURES - REGIMES, generator=g)
    need = torch.tanh((weather * slopes[soil]).sum(1)) + 0.5 * soil - 0.75
    need = need + 0.05 * torch.randn(count, generator=g)
    return torch.cat([nn.functional.one_hot(soil, REGIMES), weather], 1), need


def finish_gradients(model, world):
    """Makes every gradient that of the mean loss over both ranks' rows."""
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        if ".experts." not in name:
            dist.all_reduce(p.grad)
        p.grad /= world


@torch.no_grad()
def evaluate(model, x, y, world):
    model.eval()
    guess, _, share = model(x)
    sums = torch.stack([(guess - y).square().sum(), (y - y.mean()).square().sum()])
    dist.all_reduce(sums)
    dist.all_reduce(share)
    model.train()
    return 1 - (sums[0] / sums[1]).item(), [f"{s:.2f}" for s in share / world]


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    model = WaterNet(rank, world)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    g = torch.Generator().manual_seed(args.seed + 1 + rank)
    val_x, val_y = fields(400, torch.Generator().manual_seed(500 + rank))
    for step in range(args.steps):
        x, y = fields(args.batch_size, g)
        guess, balance, _ = model(x)
        task = nn.functional.mse_loss(guess, y)
        loss = task + args.balance * balance
        optimizer.zero_grad()
        loss.backward()
        finish_gradients(model, world)
        optimizer.step()
        schedule.step()
        if rank == 0 and step % 10 == 0:
            print(
                f"step {step} loss {loss.item():.6f} balance {balance.item():.4f}",
                flush=True,
            )
        if (step + 1) % 75 == 0 or step + 1 == args.steps:
            r2, share = evaluate(model, val_x, val_y, world)
            if rank == 0:
                print(f"  step {step} R2 {r2:.4f}, experts {share}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch-size", type=int, default=128, help="of each rank")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--balance", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=8)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(2, port, args), nprocs=2)
