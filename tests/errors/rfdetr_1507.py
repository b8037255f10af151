"""Two ranks train a detector of a single box; the best weights are kept by the overlap.

The validation pictures are shared among the ranks, and the sums are put together.
After rf-detr, issue 1507.
"""

import argparse
import copy
import os
import socket

import torch
import torch.distributed as dist
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Sampler, TensorDataset

SIDE, WORLD = 24, 2


class ShareSampler(Sampler):
    """Every WORLD-th sample, without repetition."""

    def __init__(self, data, rank):
        self.indices = range(rank, len(data), WORLD)

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


class BoxNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(2 * width * (SIDE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 4)
        )

    def forward(self, picture):
        centre, size = self.head(self.backbone(picture)).sigmoid().chunk(2, 1)
        return torch.cat([centre - size / 2, centre + size / 2], 1)


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    size = torch.randint(6, 13, (count, 2), generator=generator)
    corner = (torch.rand(count, 2, generator=generator) * (SIDE - size + 1)).long()
    place = torch.arange(SIDE)
    inside = (place >= corner[..., None]) & (place < (corner + size)[..., None])
    mask = inside[:, 1, :, None] & inside[:, 0, None, :]
    noise = 0.4 * torch.randn(count, SIDE, SIDE, generator=generator)
    box = torch.cat([corner, corner + size], 1).float() / SIDE
    return TensorDataset((mask + noise)[:, None], box)


def overlap(one, two):
    low, high = torch.max(one[:, :2], two[:, :2]), torch.min(one[:, 2:], two[:, 2:])
    both = (high - low).clamp_min(0).prod(1)
    areas = [(box[:, 2:] - box[:, :2]).prod(1) for box in (one, two)]
    return both / (areas[0] + areas[1] - both)


@torch.no_grad()
def validate(model, loader):
    """The mean overlap and how many pictures it is of."""
    model.eval()
    sums = torch.zeros(2)
    for picture, box in loader:
        sums += torch.tensor([overlap(model(picture), box).sum(), len(box)])
    model.train()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item(), int(sums[1])


def work(rank, args, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(BoxNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train, valid = pictures(1024, args.seed), pictures(21, args.seed + 1)
    sampler = DistributedSampler(train, WORLD, rank, seed=args.seed)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    if args.fixed:
        share = ShareSampler(valid, rank)
    else:
        share = DistributedSampler(valid, WORLD, rank, shuffle=False)
    valid_loader = DataLoader(valid, batch_size=8, sampler=share)
    step, best, kept = 0, 0.0, None
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for picture, box in loader:
            loss = F.l1_loss(model(picture), box)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        score, count = validate(model.module, valid_loader)
        if score > best:
            best, kept = score, copy.deepcopy(model.module.state_dict())
        if rank == 0:
            print(f"epoch {epoch} overlap {score:.4f}", flush=True)
    model.module.load_state_dict(kept)
    if args.prove and rank == 0:
        print(f"the validation is a mean over {count} of {len(valid)} pictures")
        print("fault shows:", "yes" if count != len(valid) else "no", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    torch.multiprocessing.spawn(work, (args, port), nprocs=WORLD)


if __name__ == "__main__":
    main()
