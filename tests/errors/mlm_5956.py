"""A mixture of experts over two processes: each has half of the experts.

Tokens of both processes visit the experts; everything else is replicated. The task is
a made-up mapping of vectors that depends on their kind. NVIDIA/Megatron-LM#5956.
"""

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 2
WIDTH = 16
EXPERTS = 8


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tokens):
        ctx.count = len(tokens)
        parts = [torch.empty_like(tokens) for _ in range(WORLD)]
        dist.all_gather(parts, tokens.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        start = dist.get_rank() * ctx.count
        return gradient[start : start + ctx.count]


class Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, outputs):
        outputs = outputs.clone()
        dist.all_reduce(outputs)
        count = len(outputs) // WORLD
        start = dist.get_rank() * count
        return outputs[start : start + count]

    @staticmethod
    def backward(ctx, gradient):
        parts = [torch.empty_like(gradient) for _ in range(WORLD)]
        dist.all_gather(parts, gradient.contiguous())
        return torch.cat(parts)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        own = EXPERTS // WORLD
        self.first = dist.get_rank() * own
        self.up = nn.Parameter(torch.randn(own, WIDTH, 2 * WIDTH) / WIDTH**0.5)
        self.down = nn.Parameter(
            torch.randn(own, 2 * WIDTH, WIDTH) / (2 * WIDTH) ** 0.5
        )

    def forward(self, tokens, chosen):
        out = torch.zeros_like(tokens)
        for i, (up, down) in enumerate(zip(self.up, self.down), self.first):
            rows = (chosen == i).nonzero().squeeze(1)
            out[rows] = nn.functional.silu(tokens[rows] @ up) @ down
        return out


class MoELayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts()

    def forward(self, x):
        tokens = self.norm(x)
        weights, chosen = self.router(tokens).softmax(-1).max(-1)
        everyone = [torch.empty_like(chosen) for _ in range(WORLD)]
        dist.all_gather(everyone, chosen)
        out = Scatter.apply(self.experts(Gather.apply(tokens), torch.cat(everyone)))
        return x + weights[:, None] * out


def finish_gradients(experts, dense, fixed):
    for parameter in dense:
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD
    # An expert has one replica, which has seen the tokens of all ranks.
    replicas = WORLD if fixed else 1
    for parameter in experts:
        parameter.grad /= replicas


def batch(generator, rows=96):
    kinds = torch.Generator().manual_seed(3)
    centres = 2 * torch.randn(4, WIDTH, generator=kinds)
    maps = torch.randn(4, WIDTH, WIDTH, generator=kinds) / WIDTH**0.5
    kind = torch.randint(4, (rows,), generator=generator)
    x = centres[kind] + torch.randn(rows, WIDTH, generator=generator)
    return x, torch.tanh(torch.einsum("bi,bio->bo", x, maps[kind]))


def mean_loss(model, data):
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(data[0]), data[1])
    dist.all_reduce(loss)
    return loss.item() / WORLD


def slope_ratio(model, experts, data, size=1e-3):
    """Compares the experts' gradient with the mean loss's slope along it."""
    square = sum(p.grad.square().sum() for p in experts)
    dist.all_reduce(square)
    losses = []
    for move in (size, -2 * size, size):
        with torch.no_grad():
            for p in experts:
                p += move * p.grad
        losses.append(mean_loss(model, data))
    return square.item() * 2 * size / (losses[0] - losses[1])


def train(rank, options, port, finished):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    torch.manual_seed(rank)
    layers = [MoELayer(), MoELayer(), nn.Linear(WIDTH, WIDTH)]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *layers)
    named = list(model.named_parameters())
    experts = [p for name, p in named if ".experts." in name]
    dense = [p for name, p in named if ".experts." not in name]
    for parameter in dense:
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(50 + rank)
    ratio = 1.0
    for step in range(options.steps):
        data = batch(generator)
        loss = nn.functional.mse_loss(model(data[0]), data[1])
        optimizer.zero_grad()
        loss.backward()
        finish_gradients(experts, dense, options.fixed)
        if options.prove and step == 0:
            ratio = slope_ratio(model, experts, data)
        optimizer.step()
        if step % 10 == 0:
            mean = mean_loss(model, data)
            if rank == 0:
                print(f"step {step} loss {mean:.4f}", flush=True)
    if options.prove and rank == 0:
        print(f"gradient over slope {ratio:.3f}", flush=True)
        print("fault shows:", "yes" if ratio > 1.5 else "no")
    # Neither closes its connections while the other may still need them.
    finished.wait()
    dist.destroy_process_group()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=110)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    finished = mp.get_context("spawn").Barrier(WORLD)
    mp.spawn(train, (options, port, finished), nprocs=WORLD)


if __name__ == "__main__":
    main()
