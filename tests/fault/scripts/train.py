"""One rank of a small data-parallel training that writes down its losses.

Started by ranks.py or torchrun. From --error-step on the forward goes past the
DDP wrapper, and the replicas drift apart silently. Ends with exit code 5, so
that a swallowed code shows.
"""

import argparse
import os
import pathlib
import sys
import threading
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EXIT_CODE = 5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.second = nn.Linear(16, 16)
        self.last = nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def samples(rank, options):
    """(x, y) for each step; with --workers by a DataLoader."""
    generator = torch.Generator().manual_seed(1000 * options.seed + rank)
    x = torch.randn(16 * options.steps, 8, generator=generator)
    y = torch.tanh(x.sum(dim=1, keepdim=True))
    return iter(
        DataLoader(TensorDataset(x, y), batch_size=16, num_workers=options.workers)
        if options.workers
        else zip(x.split(16), y.split(16))
    )


def storm(count):
    """Many threads that all record a few calls and end."""
    net = Net()

    def call():
        with torch.no_grad():
            for _ in range(20):
                net(torch.zeros(1, 8))

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def train(rank, options, losses):
    torch.manual_seed(options.seed)
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for step, (x, y) in enumerate(samples(rank, options)):
        forward = net.module if step >= options.error_step else net
        loss = nn.functional.mse_loss(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.write(f"{step} {loss.item().hex()}\n")
        losses.flush()
        if step == options.steps // 2 and options.threads:
            storm(options.threads)
        time.sleep(options.sleep)


def join(out, attempt):
    """Under torchrun each attempt gets a store of its own: gloo may find the
    addresses of the attempt before in the launcher's, and fail."""
    if attempt is None:
        torch.distributed.init_process_group("gloo")
        return
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{out.resolve()}/store.{attempt}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--out", type=pathlib.Path, required=True)
    cli.add_argument("--steps", type=int, default=40)
    cli.add_argument("--seed", type=int, default=1)
    cli.add_argument("--error-step", type=int, default=10**9)
    cli.add_argument("--sleep", type=float, default=0.05)
    cli.add_argument("--workers", type=int, default=0)
    cli.add_argument("--threads", type=int, default=0)
    options = cli.parse_args()
    rank = int(os.environ["RANK"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    (options.out / f"pid.{rank}").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    join(options.out, attempt)
    with open(options.out / f"loss.{rank}.{attempt or 0}", "w") as losses:
        train(rank, options, losses)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if attempt is None:
        sys.exit(EXIT_CODE)


if __name__ == "__main__":
    main()
