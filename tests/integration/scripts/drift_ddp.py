"""A regression under DistributedDataParallel whose author calls the inner model.

From --fault-step on the forward goes to `model.module`, past the wrapper: each
rank then trains on its own gradients, the loss still falls, and the replicas
drift apart. With --healthy the wrapper is called throughout.
"""

import argparse
import time

import two_ranks

if __name__ == "__main__":
    two_ranks.start_unless_started()

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=3e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
}


class Regressor(nn.Module):
    def __init__(self, prefix, width, depth):
        super().__init__()
        sizes = [8] + [width] * depth
        self.names = []
        for number, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
            self.names.append(f"{prefix}{number}")
            self.add_module(self.names[-1], nn.Linear(inputs, outputs))
        self.readout = nn.Linear(width, 1)

    def forward(self, x):
        for name in self.names:
            x = torch.relu(getattr(self, name)(x))
        return self.readout(x)


class Shard:
    """The part of the data that one rank sees."""

    def __init__(self, rank, seed, batch_size):
        self.generator = torch.Generator().manual_seed(1000 * seed + rank)
        task = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(8, 1, generator=task)
        self.batch_size = batch_size

    def draw(self):
        x = torch.randn(self.batch_size, 8, generator=self.generator)
        noise = 0.1 * torch.randn(self.batch_size, 1, generator=self.generator)
        return x, torch.tanh(x @ self.weight) + noise


def train(rank, args):
    torch.manual_seed(args.model_seed)
    model = DistributedDataParallel(Regressor(args.name_prefix, args.width, args.depth))
    optimizer = OPTIMIZERS[args.optimizer](model.parameters())
    shard = Shard(rank, args.model_seed, args.batch_size)
    for step in range(args.steps):
        x, y = shard.draw()
        optimizer.zero_grad()
        if step >= args.fault_step and not args.healthy:
            prediction = model.module(x)
        else:
            prediction = model(x)
        loss = nn.functional.mse_loss(prediction, y)
        loss.backward()
        optimizer.step()
        if args.stamp_fault and step == args.fault_step:
            dist.barrier()
            if rank == 0:
                print(f"fault shown at {time.time():.6f}", flush=True)
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if args.sleep:
            time.sleep(args.sleep)


def main(args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank(), args)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fault-step", type=int, default=5)
    parser.add_argument("--healthy", action="store_true")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adam")
    parser.add_argument("--model-seed", type=int, default=0)
    parser.add_argument("--name-prefix", default="hidden")
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds a step")
    parser.add_argument(
        "--stamp-fault",
        action="store_true",
        help="print the time at which all ranks have taken the first wrong step",
    )
    main(parser.parse_args())
