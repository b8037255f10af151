"""A pump's next pressure from the last readings, tensor parallel on two ranks.

The first linear of a block is split by columns, the second by rows; its bias is the same
on both ranks and enters the sum in halves. pytorch/torchtitan#4332.
"""

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

WORLD = 2


class CopyToRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ColumnwiseLinear(nn.Module):
    def __init__(self, inputs, outputs, rank):
        super().__init__()
        full = nn.Linear(inputs, outputs)
        self.weight = nn.Parameter(full.weight.detach().chunk(WORLD)[rank].clone())
        self.bias = nn.Parameter(full.bias.detach().chunk(WORLD)[rank].clone())

    def forward(self, x):
        return F.linear(CopyToRanks.apply(x), self.weight, self.bias)


class RowwiseLinear(nn.Module):
    def __init__(self, inputs, outputs, rank, whole_gradient):
        super().__init__()
        full = nn.Linear(inputs, outputs)
        self.weight = nn.Parameter(full.weight.detach().chunk(WORLD, 1)[rank].clone())
        self.bias = nn.Parameter(full.bias.detach().clone())
        self.whole_gradient = whole_gradient

    def forward(self, x):
        share = self.bias / WORLD
        if self.whole_gradient:
            share = self.bias + (share - self.bias).detach()
        return SumOverRanks.apply(F.linear(x, self.weight, share))


class Block(nn.Module):
    def __init__(self, width, rank, whole_gradient):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = ColumnwiseLinear(width, 4 * width, rank)
        self.down = RowwiseLinear(4 * width, width, rank, whole_gradient)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class PressureNet(nn.Module):
    def __init__(self, rank, whole_gradient, window=24, width=32):
        super().__init__()
        self.first = nn.Linear(window, width)
        self.blocks = nn.ModuleList(
            Block(width, rank, whole_gradient) for _ in range(2)
        )
        self.last = nn.Linear(width, 1)

    def forward(self, window):
        x = self.first(window)
        for block in self.blocks:
            x = block(x)
        return self.last(x).squeeze(-1)


def readings(length, seed):
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(float(length))
    wave = torch.sin(time / 5) + 0.5 * torch.sin(time / 1.7 + torch.sin(time / 31))
    noise = 0.1 * torch.randn(length, generator=generator)
    windows = (wave + noise + 1.5).unfold(0, 25, 1)
    return windows[:, :-1], windows[:, -1]


def watch(model):
    """Keeps the gradient at the output of each row-wise linear."""
    kept = {}

    def hook(module, args, out):
        if out.requires_grad:
            out.register_hook(lambda grad: kept.__setitem__(module, grad.sum(0)))

    for module in model.modules():
        if isinstance(module, RowwiseLinear):
            module.register_forward_hook(hook)
    return kept


def train(rank, port, options):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = PressureNet(rank, whole_gradient=options.fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
    kept = watch(model) if options.prove else {}
    window, after = readings(2000, 1)
    generator = torch.Generator().manual_seed(3)  # the same batches on both ranks
    ratios = []
    for step in range(options.steps):
        pick = torch.randint(1600, (48,), generator=generator)
        loss = F.mse_loss(model(window[pick]), after[pick])
        optimizer.zero_grad()
        loss.backward()
        for module, grad in kept.items():
            ratios.append((module.bias.grad.norm() / grad.norm()).item())
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        off = F.l1_loss(model(window[1700:]), after[1700:]).item()
    if rank == 0:
        print(f"validation {off:.4f}", flush=True)
        if options.prove:
            mean = sum(ratios) / len(ratios)
            print(f"gradients of biases: {mean:.3f} of what they should be")
            print("fault shows:", "yes" if abs(mean - 1) > 0.1 else "no", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=80)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, args=(port, options), nprocs=WORLD)


if __name__ == "__main__":
    main()
