"""PML-710: the class centres of the loss are in no data-parallel wrapper.

Source: KevinMusgrave/pytorch-metric-learning#710 (also ClassyVision#394). ArcFace has
a weight for each class, which stands in the loss and is trained by the same
optimizer. Only the network is wrapped: each rank moves its centres by the gradients
of its own batches, and the embeddings are drawn to different centres. --fixed wraps
the loss as well.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ArcFaceLoss(nn.Module):
    def __init__(self, classes, size, margin=0.2, scale=12.0):
        super().__init__()
        self.W = nn.Parameter(torch.empty(classes, size))
        nn.init.xavier_normal_(self.W)
        self.margin = margin
        self.scale = scale

    def forward(self, embeddings, labels):
        cosine = F.normalize(embeddings) @ F.normalize(self.W).T
        angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))
        own = F.one_hot(labels, cosine.shape[1]).bool()
        logits = torch.where(own, torch.cos(angle + self.margin), cosine)
        return F.cross_entropy(self.scale * logits, labels)


class FaceNet(nn.Module):
    def __init__(self, size=12):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.PReLU(8),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.PReLU(16),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.embed = nn.Linear(64, size)

    def forward(self, image):
        return self.embed(self.trunk(image))


def faces(count, people):
    g = torch.Generator().manual_seed(9)
    likeness = F.interpolate(torch.randn(people, 1, 4, 4, generator=g), 12)
    who = torch.randint(people, (count,), generator=g)
    images = likeness[who] + 0.5 * torch.randn(count, 1, 12, 12, generator=g)
    return TensorDataset(images, who)


def spread(tensor):
    high, low = tensor.detach().clone(), tensor.detach().clone()
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    return (high - low).max().item()


def train(rank, world, options):
    torch.manual_seed(0)
    people = 10
    data = faces(480, people)
    sampler = DistributedSampler(data, world, rank, seed=4)
    loader = DataLoader(data, batch_size=24, sampler=sampler)
    model = DDP(FaceNet())
    criterion = ArcFaceLoss(people, size=12)
    if options.fixed:
        criterion = DDP(criterion)
    optimizer = torch.optim.SGD(
        [
            {"params": model.parameters(), "weight_decay": 5e-4},
            {"params": criterion.parameters()},
        ],
        lr=0.03,
        momentum=0.9,
    )
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for images, who in loader:
            if step == options.steps:
                break
            loss = criterion(model(images), who)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        epoch += 1
    if options.prove:
        apart = spread(next(criterion.parameters())) > 1e-5
        if rank == 0:
            print("fault shows:", "yes" if apart else "no", flush=True)


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
    cli.add_argument("--steps", type=int, default=24)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(worker, args=(2, port, options), nprocs=2)


if __name__ == "__main__":
    main()
