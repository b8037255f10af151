"""Three ranks learn to read the weight of fruit from pictures; gradients go in a ring.

Each rank passes what it got to its neighbour and adds it up, written by hand with sends
and receives. pytorch/tutorials#1039 (pytorch/pytorch#31572).
"""

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORLD = 3


class FruitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 20, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(320, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, image):
        return self.head(self.features(image)).squeeze(1)


def fruit(count, seed, size=16):
    generator = torch.Generator().manual_seed(seed)
    radius = 2 + 5 * torch.rand(count, generator=generator)
    ripe = torch.rand(count, generator=generator)
    grid = (torch.arange(float(size)) - size / 2) ** 2
    disc = (grid[:, None] + grid[None, :]) < radius[:, None, None] ** 2
    colour = torch.stack([ripe, 1 - ripe, 0.2 * torch.ones(count)], 1)
    image = disc[:, None].float() * colour[:, :, None, None]
    image += 0.2 * torch.randn(image.shape, generator=generator)
    weight = radius**3 / 100 * (0.8 + 0.4 * ripe)
    return TensorDataset(image, weight)


class Ring:
    """The mean of a tensor over all ranks."""

    def __init__(self, rank, add_received):
        self.left, self.right = (rank - 1) % WORLD, (rank + 1) % WORLD
        self.add_received = add_received

    def mean(self, values):
        total, passed = values.clone(), values.clone()
        received = torch.empty_like(values)
        for _ in range(WORLD - 1):
            sending = dist.isend(passed, self.right)
            dist.recv(received, self.left)
            sending.wait()
            total += received if self.add_received else passed
            passed, received = received, passed
        return total / WORLD


def average_gradients(model, ring):
    parameters = [p for p in model.parameters() if p.grad is not None]
    flat = ring.mean(torch.cat([p.grad.flatten() for p in parameters]))
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad.copy_(part.view_as(p))


def prove(model, rank):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach()
    copies = [torch.empty_like(flat) for _ in range(WORLD)]
    dist.all_gather(copies, flat)
    if rank == 0:
        gap = max((copies[0] - other).abs().max().item() for other in copies[1:])
        print(f"the ranks' weights differ by {gap:.6f}", flush=True)
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    image, weight = data.tensors
    off = (model(image) - weight).abs().mean().item()
    model.train()
    return off


def train(rank, port, options):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model, ring = FruitNet(), Ring(rank, add_received=options.fixed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data, valid = fruit(960, 1), fruit(200, 2)
    sampler = DistributedSampler(data, WORLD, rank, seed=5)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        for image, weight in loader:
            if step == options.steps:
                break
            loss = F.mse_loss(model(image), weight)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, ring)
            optimizer.step()
            if rank == 0 and step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        if rank == 0:
            print(f"epoch {epoch} off by {evaluate(model, valid):.4f}", flush=True)
        epoch += 1
    if options.prove:
        prove(model, rank)
    dist.barrier()
    dist.destroy_process_group()


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=60)
    options = cli.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, args=(port, options), nprocs=WORLD)


if __name__ == "__main__":
    main()
