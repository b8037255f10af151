"""PT-36382: synchronised batch normalisation with unequal batches.

Source: pytorch/pytorch#36382 (follows #22248). The forward weighs the ranks by their
batch sizes; the backward still averages the gradient's means as if all batches were
equal, and returns a wrong gradient for the input where they are not. --fixed weighs
them in the backward as well.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SyncNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps, weigh_backward):
        count = torch.full((1,), float(len(x)))
        sums = torch.cat([x.sum(0), x.square().sum(0), count])
        dist.all_reduce(sums)
        total = sums[-1]
        mean, square = (sums[:-1] / total).chunk(2)
        scale = (square - mean.square() + eps).rsqrt()
        normal = (x - mean) * scale
        ctx.save_for_backward(normal, weight, scale, total)
        ctx.weigh = weigh_backward
        ctx.mark_non_differentiable(mean, scale)
        return normal * weight + bias, mean, scale

    @staticmethod
    def backward(ctx, grad, _mean, _scale):
        normal, weight, scale, total = ctx.saved_tensors
        grad_weight, grad_bias = (grad * normal).sum(0), grad.sum(0)
        means = torch.cat([grad_bias, grad_weight])
        if ctx.weigh:
            dist.all_reduce(means)
            means /= total
        else:
            means /= len(grad)
            dist.all_reduce(means)
            means /= dist.get_world_size()
        mean_grad, mean_product = means.chunk(2)
        grad_input = (grad - mean_grad - normal * mean_product) * scale * weight
        return grad_input, grad_weight, grad_bias, None, None


class SyncBatchNorm(nn.Module):
    def __init__(self, features, weigh_backward, momentum=0.1, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_scale", torch.ones(features))
        self.momentum, self.eps = momentum, eps
        self.weigh_backward = weigh_backward

    def forward(self, x):
        if not self.training:
            normal = (x - self.running_mean) * self.running_scale
            return normal * self.weight + self.bias
        y, mean, scale = SyncNormFunction.apply(
            x, self.weight, self.bias, self.eps, self.weigh_backward
        )
        self.running_mean.lerp_(mean, self.momentum)
        self.running_scale.lerp_(scale, self.momentum)
        return y


def build(weigh_backward):
    return nn.Sequential(
        nn.Linear(6, 20),
        SyncBatchNorm(20, weigh_backward),
        nn.ReLU(),
        nn.Linear(20, 20),
        SyncBatchNorm(20, weigh_backward),
        nn.ReLU(),
        nn.Linear(20, 3),
    )


def batches(rank):
    """Four full batches in an epoch, and what is left for the rank."""
    generator = torch.Generator().manual_seed(60 + rank)
    number = 0
    while True:
        size = 16 if number % 5 < 4 else (12, 5)[rank]
        x = torch.randn(size, 6, generator=generator) + 0.5 * rank
        yield x, (x[:, 0] > 0).long() + (x[:, 1] * x[:, 2] > 0).long()
        number += 1


def train(rank, world, options):
    torch.manual_seed(0)
    model = DDP(build(options.fixed))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = batches(rank)
    for step in range(options.steps):
        x, y = next(data)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    if options.prove:
        # The mean is taken out, so an input's gradients sum to zero over all ranks.
        x = torch.randn((12, 5)[rank], 20) + rank
        x.requires_grad_()
        model.module[1](x).pow(3).mul(torch.arange(20.0)).sum().backward()
        total = x.grad.sum(0)
        dist.all_reduce(total)
        if rank == 0:
            zero = total.abs().max() < 1e-3 * x.grad.abs().max()
            print("fault shows:", "no" if zero else "yes", flush=True)


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
    cli.add_argument("--steps", type=int, default=15)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
