# Surface defects on metal parts: small CNN, two workers on one box.
import argparse
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DEFECTS = ("none", "scratch", "pit", "stain")


def render(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(DEFECTS), n)
    x = 0.35 * rng.standard_normal((n, 1, 16, 16)).astype(np.float32)
    gy, gx = np.mgrid[:16, :16]
    for i, c in enumerate(y):
        cy, cx = rng.uniform(4, 12, 2)
        if c == 1:
            angle = rng.uniform(0, np.pi)
            d = np.abs((gx - cx) * np.sin(angle) - (gy - cy) * np.cos(angle))
            x[i, 0] += 1.0 * (d < 0.8)
        elif c == 2:
            x[i, 0] -= 1.4 * ((gy - cy) ** 2 + (gx - cx) ** 2 < 5)
        elif c == 3:
            x[i, 0] += 0.8 * np.exp(-((gy - cy) ** 2 + (gx - cx) ** 2) / 18)
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class PartNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.GroupNorm(3, 12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.GroupNorm(3, 24),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(2),
        )
        self.head = nn.Linear(96, len(DEFECTS))

    def forward(self, x):
        return self.head(self.features(x).flatten(1))

    def training_loss(self, x, y):
        return nn.functional.cross_entropy(self(x), y, label_smoothing=0.05)


class LossWrapper(nn.Module):
    """Model and criterion in one module, so that forward gives the loss."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return self.net.training_loss(x, y)


class Worker:
    def __init__(self, rank, world, args):
        self.rank, self.args = rank, args
        torch.manual_seed(1234)
        self.ddp = DistributedDataParallel(LossWrapper(PartNet()))
        self.net = self.ddp.module.net
        self.opt = optim.SGD(
            self.ddp.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4
        )
        data = render(768, 10)
        self.sampler = DistributedSampler(data, world, rank, shuffle=True, seed=3)
        self.loader = DataLoader(data, 24, sampler=self.sampler, drop_last=True)
        self.test = render(300, 11)

    def loss(self, x, y):
        if self.args.fixed:
            return self.ddp(x, y)
        return self.ddp.module(x, y)

    @torch.no_grad()
    def accuracy(self):
        self.net.eval()
        x, y = self.test.tensors
        acc = (self.net(x).argmax(1) == y).float().mean().item()
        self.net.train()
        return acc

    def train(self):
        step, epoch = 0, 0
        while step < self.args.steps:
            self.sampler.set_epoch(epoch)
            losses = []
            for x, y in self.loader:
                self.opt.zero_grad()
                loss = self.loss(x, y)
                loss.backward()
                self.opt.step()
                losses.append(loss.item())
                step += 1
                if step >= self.args.steps:
                    break
            mean = torch.tensor(sum(losses) / len(losses))
            dist.all_reduce(mean)
            if self.rank == 0:
                print(
                    f"epoch {epoch:2d} | step {step:3d} | loss {mean.item() / dist.get_world_size():.4f} "
                    f"| test acc {self.accuracy():.3f}",
                    flush=True,
                )
            epoch += 1

    def compare_ranks(self):
        flat = torch.cat([p.detach().flatten() for p in self.net.parameters()])
        other = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
        dist.all_gather(other, flat)
        gap = (other[0] - other[1]).abs().max().item()
        if self.rank == 0:
            print(f"# largest difference of a weight between the two ranks: {gap:.6f}")
            print("fault shows:", "yes" if gap > 1e-6 else "no", flush=True)


def entry(rank, world, rendezvous, args):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world
    )
    worker = Worker(rank, world, args)
    worker.train()
    if args.prove:
        worker.compare_ranks()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=96)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    cli = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(entry, args=(2, os.path.join(folder, "init"), cli), nprocs=2)
