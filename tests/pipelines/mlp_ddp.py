"""Fits a multi-layer perceptron to a smooth function on several ranks.

    python mlp_ddp.py --nproc 2
    torchrun --nproc-per-node 2 mlp_ddp.py
"""

import argparse
import hashlib
import os
import socket
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ranks import gather_digests, leave_group


class Perceptron(nn.Module):
    def __init__(self, inputs, hidden, depth):
        super().__init__()
        layers = [nn.Linear(inputs, hidden), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(hidden, hidden), nn.Tanh()]
        self.layers = nn.Sequential(*layers)
        self.output = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.output(self.layers(x)).squeeze(-1)


def target(x):
    return torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3]


def batches(seed, size, inputs):
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.rand(size, inputs, generator=generator) * 2 - 1
        yield x, target(x)


def fit(rank, options):
    torch.manual_seed(options.seed)
    net = DDP(Perceptron(options.inputs, options.hidden, options.depth))
    optimizer = torch.optim.SGD(net.parameters(), lr=options.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.7)
    data = batches(options.seed * 1000 + rank, options.batch_size, options.inputs)
    for step in range(options.steps):
        x, y = next(data)
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), options.max_norm)
        optimizer.step()
        scheduler.step()
        if rank == 0:
            print(f"{step} {loss.item().hex()}", flush=True)
        if options.sleep:
            time.sleep(options.sleep)
    return net.module


def fingerprint(net):
    sha = hashlib.sha256()
    for name, parameter in net.named_parameters():
        sha.update(name.encode())
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()


def worker(rank, world, port, options):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    finish(rank, fit(rank, options), options)


def finish(rank, net, options):
    if options.print_digest:
        found = gather_digests(fingerprint(net))
        if rank == 0:
            for number, value in enumerate(found):
                print(f"digest of rank {number}: {value}", flush=True)
        torch.distributed.barrier()
    leave_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--inputs", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--max-norm", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds a step")
    parser.add_argument("--print-digest", action="store_true")
    options = parser.parse_args()

    if "RANK" in os.environ:
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
        finish(rank, fit(rank, options), options)
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        torch.multiprocessing.spawn(
            worker, args=(options.nproc, port, options), nprocs=options.nproc
        )


if __name__ == "__main__":
    main()
