"""Two ranks learn to tell spirals apart; the trainer counts steps, not epochs.

After areal-project/AReaL, issue 632.
"""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Spirals(Dataset):
    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        self.label = torch.randint(3, (count,), generator=gen)
        radius = torch.rand(count, generator=gen) * 0.9 + 0.1
        noise = 0.15 * torch.randn(count, generator=gen)
        angle = radius * 4 + self.label * 2.0944 + noise
        self.x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        return index, self.x[index], self.label[index]


def cycle_dataloader(loader):
    while True:
        for batch in loader:
            yield batch


def cycle_dataloader_with_epochs(loader):
    epoch = 0
    while True:
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            yield batch
        epoch += 1


def build_loader(dataset, args, rank, world):
    sampler = DistributedSampler(
        dataset,
        num_replicas=world,
        rank=rank,
        shuffle=True,
        seed=args.seed,
        drop_last=True,
    )
    return DataLoader(dataset, args.batch_size, sampler=sampler, drop_last=True)


def build_model():
    return nn.Sequential(
        nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3)
    )


@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    logits = model(dataset.x)
    model.train()
    return (logits.argmax(1) == dataset.label).float().mean().item()


def train(args, cycle, rank, world):
    torch.manual_seed(args.seed)
    train_set, held = Spirals(256, 1), Spirals(256, 2)
    batches = cycle(build_loader(train_set, args, rank, world))
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(args.steps):
        _, x, label = next(batches)
        loss = F.cross_entropy(model(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 16 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step} loss {mean.item() / world:.4f}", flush=True)
    if rank == 0:
        print(f"accuracy {evaluate(model.module, held):.3f}", flush=True)


def passes(args, cycle, rank, world):
    """The indices of a rank in its first three passes."""
    loader = build_loader(Spirals(256, 1), args, rank, world)
    batches = cycle(loader)
    return [[next(batches)[0].tolist() for _ in range(len(loader))] for _ in range(3)]


def prove(args, cycle, world):
    orders = [passes(args, cycle, rank, world) for rank in range(world)]
    same = sum(order[0] == later for order in orders for later in order[1:])
    print(f"{same} of {2 * world} later passes have the order of the first")
    print("fault shows:", "yes" if same else "no", flush=True)


def work(rank, world, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    cycle = cycle_dataloader_with_epochs if args.fixed else cycle_dataloader
    train(args, cycle, rank, world)
    if args.prove and rank == 0:
        prove(args, cycle, world)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    mp.spawn(work, args=(2, args, port), nprocs=2)


if __name__ == "__main__":
    main()
