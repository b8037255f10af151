"""Trains a small convolutional classifier with DistributedDataParallel.

    python cnn_ddp.py --nproc 2
    torchrun --nproc-per-node 2 cnn_ddp.py
"""

import argparse
import hashlib
import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from ranks import gather_digests, leave_group

CLASSES = 4


class Shapes(Dataset):
    """8x8 images: one noisy pattern a class."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        patterns = torch.Generator().manual_seed(1234)
        prototypes = torch.randn(CLASSES, 1, 8, 8, generator=patterns)
        self.labels = torch.randint(CLASSES, (size,), generator=generator)
        noise = torch.randn(size, 1, 8, 8, generator=generator)
        self.images = prototypes[self.labels] + 0.5 * noise

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        # A random horizontal flip, as augmentation.
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.labels[index]


class SmallCNN(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(2 * width * 4, CLASSES)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.classifier(self.dropout(x.flatten(1)))


def evaluate(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(1) == labels).sum().item()
            total += len(labels)
    model.train()
    return correct / total


def digest(model):
    sha = hashlib.sha256()
    for tensor in model.state_dict().values():
        sha.update(tensor.detach().contiguous().numpy().tobytes())
    return sha.hexdigest()


def train(args):
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(SmallCNN(args.width, args.dropout))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    world = dist.get_world_size()
    per_epoch = args.steps_per_epoch * args.batch_size * world
    train_set = Shapes(per_epoch, seed=args.seed + 1)
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed)
    loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.workers,
        # As under torchrun; a spawned rank would spawn its workers too.
        multiprocessing_context="fork" if args.workers else None,
        generator=torch.Generator().manual_seed(args.seed + rank),
    )
    test_loader = DataLoader(Shapes(64, seed=args.seed + 2), batch_size=32)

    step = epoch = 0
    model.train()
    while step < args.steps:
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {step} loss {loss.item().hex()}", flush=True)
            step += 1
            if step == args.steps:
                break
            if step % args.eval_every == 0:
                accuracy = evaluate(model, test_loader)
                if rank == 0:
                    print(f"step {step} accuracy {accuracy:.3f}", flush=True)
        epoch += 1
    return model


def print_digests(model):
    digests = gather_digests(digest(model))
    if dist.get_rank() == 0:
        for rank, value in enumerate(digests):
            print(f"rank {rank} digest {value}", flush=True)
    dist.barrier()


def run(rank, world, args):
    os.environ.setdefault("RANK", str(rank))
    os.environ.setdefault("WORLD_SIZE", str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = train(args)
    if args.print_digest:
        print_digests(model)
    leave_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--steps-per-epoch", type=int, default=8)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--print-digest", action="store_true")
    return parser.parse_args(argv)


def main(argv):
    args = parse(argv)
    if "RANK" in os.environ:
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args)
        return
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(free_port())
    mp.spawn(run, args=(args.nproc, args), nprocs=args.nproc)


if __name__ == "__main__":
    main(sys.argv[1:])
