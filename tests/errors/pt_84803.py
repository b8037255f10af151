"""PT-84803: a replica receives damaged weights.

Source: pytorch/pytorch#84803. Peer-to-peer transfers between the devices lose data
without an error, so that the weights which DDP broadcasts when it wraps the model
arrive incomplete. Here the loss happens below the collective, on the second rank.
--fixed has a link that loses nothing.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def lossy_link(rank):
    """What a broken driver does to a broadcast that arrives at `rank`."""
    transfer = dist._broadcast_coalesced

    def broadcast(group, tensors, size, source):
        transfer(group, tensors, size, source)
        if rank != source and dist.get_rank() == rank:
            last = max(tensors, key=torch.Tensor.numel)
            last.detach().view(-1)[last.numel() // 2 :].zero_()

    dist._broadcast_coalesced = broadcast


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(2, 8, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4)
        )
        self.classifier = nn.Sequential(nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 4))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def signals(count):
    torch.manual_seed(11)
    labels = torch.arange(count) % 4
    time_axis = torch.linspace(0, 6.28, 32)
    waves = torch.sin(time_axis * (labels[:, None] + 1))
    return TensorDataset(
        torch.stack([waves, waves.roll(3, 1)], 1) + 0.3 * torch.randn(count, 2, 32),
        labels,
    )


def spread(model):
    """The largest difference of a parameter between the ranks."""
    largest = 0.0
    for parameter in model.parameters():
        copies = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, parameter.detach())
        largest = max(largest, (copies[0] - copies[1]).abs().max().item())
    return largest


def train(rank, world, options):
    if not options.fixed:
        lossy_link(1)
    torch.manual_seed(2)
    model = DDP(Net())
    data = signals(128)
    sampler = DistributedSampler(data, seed=4)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for x, y in loader:
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        epoch += 1
    if options.prove:
        shown = spread(model) > 0
        if rank == 0:
            print("fault shows:", "yes" if shown else "no", flush=True)


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
    cli.add_argument("--steps", type=int, default=16)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
