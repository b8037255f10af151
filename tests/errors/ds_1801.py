"""DS-1801: tensor-parallel ranks clip different sets of gradients.

Source: deepspeedai/DeepSpeed#1801. The list of gradients for the global norm leaves
out replicated parameters on all ranks but the first, so that they count once; the
same list is then used for scaling, and the other ranks step with unclipped layer
norms. --fixed leaves nothing out when it scales.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn


class CopyToRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class ReduceFromRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelBlock(nn.Module):
    """A feed-forward block, the hidden units of which are split over the ranks."""

    def __init__(self, width, hidden, world):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden // world)
        self.down = nn.Linear(hidden // world, width, bias=False)
        for parameter in (*self.up.parameters(), *self.down.parameters()):
            parameter.tensor_model_parallel = True

    def forward(self, x):
        inner = CopyToRegion.apply(self.norm(x))
        return x + ReduceFromRegion.apply(self.down(torch.relu(self.up(inner))))


class Regressor(nn.Module):
    def __init__(self, world, rank):
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Linear(6, 16)
        self.head = nn.Linear(16, 1)
        torch.manual_seed(50 + rank)
        self.blocks = nn.ModuleList(ParallelBlock(16, 32, world) for _ in range(2))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


def is_split(parameter):
    return getattr(parameter, "tensor_model_parallel", False)


class ClippingOptimizer:
    """Owns an optimizer, and clips by the norm over all tensor-parallel ranks."""

    def __init__(self, parameters, max_norm, rank, scale_all, **options):
        self.parameters = list(parameters)
        self.max_norm = max_norm
        self.rank = rank
        self.scale_all = scale_all
        self.inner = torch.optim.SGD(self.parameters, **options)

    def gradients(self, for_clipping=False):
        every = self.rank == 0 or (for_clipping and self.scale_all)
        return [p.grad for p in self.parameters if every or is_split(p)]

    def step(self):
        squares = sum(g.square().sum() for g in self.gradients())
        dist.all_reduce(squares)
        scale = self.max_norm / (squares.sqrt().item() + 1e-6)
        if scale < 1:
            for gradient in self.gradients(for_clipping=True):
                gradient.mul_(scale)
        self.inner.step()
        self.inner.zero_grad()


def replicas_differ(model):
    mine = torch.cat(
        [p.detach().ravel() for p in model.parameters() if not is_split(p)]
    )
    copies = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, mine)
    return not torch.equal(*copies)


def train(rank, world, options):
    model = Regressor(world, rank)
    optimizer = ClippingOptimizer(
        model.parameters(), 1.0, rank, options.fixed, lr=0.05, momentum=0.9
    )
    data = torch.Generator().manual_seed(7)
    for step in range(options.steps):
        x = torch.randn(32, 6, generator=data)
        y = x[:, 0] * x[:, 1] + x[:, 2]
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        differ = replicas_differ(model)
        if rank == 0:
            print("fault shows:", "yes" if differ else "no", flush=True)


def worker(rank, world, port, options):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    train(rank, world, options)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=20)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
