"""Counts cells in microscope-like images on two ranks. After every epoch rank 0 alone
evaluates and keeps the best weights in a file while the others wait at a barrier;
at the end all ranks load that file.

    python ddp_rank0_eval.py --steps 64
"""

import argparse
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from ranks import leave_group


class Cells(Dataset):
    """24x24 images with up to six round cells; the target is a density map."""

    def __init__(self, n, seed, side=24):
        g = torch.Generator().manual_seed(seed)
        grid = torch.arange(side).float()
        self.images, self.maps = torch.zeros(2, n, 1, side, side)
        for i in range(n):
            count = int(torch.randint(0, 7, (), generator=g))
            where = 2 + (side - 4) * torch.rand(count, 2, 1, 1, generator=g)
            d2 = (grid[:, None] - where[:, 0]) ** 2 + (grid - where[:, 1]) ** 2
            self.images[i, 0] = torch.exp(-d2 / 5).sum(0)
            self.maps[i, 0] = torch.exp(-d2 / 3).sum(0) / (3 * torch.pi)
        self.images += 0.1 * torch.randn(self.images.shape, generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.maps[i]


class DensityNet(nn.Module):
    def __init__(self, ch=12):
        super().__init__()
        self.enc = nn.Conv2d(1, ch, 5, padding=2)
        self.gn = nn.GroupNorm(3, ch)
        self.mid = nn.Conv2d(ch, ch, 3, padding=2, dilation=2)
        self.dec = nn.Conv2d(2 * ch, 1, 1)
        nn.init.zeros_(self.dec.bias)

    def forward(self, x):
        a = torch.relu(self.gn(self.enc(x)))
        return self.dec(torch.cat([a, torch.relu(self.mid(a))], dim=1))


def density_loss(guess, maps):
    counts = nn.functional.l1_loss(guess.sum((1, 2, 3)), maps.sum((1, 2, 3)))
    return 100 * nn.functional.mse_loss(guess, maps) + 0.05 * counts


class Trainer:
    def __init__(self, rank, args, best_path):
        self.rank, self.args, self.best_path = rank, args, best_path
        data = Cells(args.images, seed=1)
        self.sampler = DistributedSampler(data, shuffle=True, seed=args.seed)
        self.loader = DataLoader(data, args.batch_size, sampler=self.sampler)
        self.val_loader = DataLoader(Cells(64, seed=2), 32) if rank == 0 else None
        self.model = DDP(DensityNet())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        self.step, self.best = 0, float("inf")

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for images, maps in self.loader:
            if self.step == self.args.steps:
                break
            loss = density_loss(self.model(images), maps)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0 and self.step % 8 == 0:
                print(
                    f"epoch {epoch} step {self.step} loss {loss.item():.6f}", flush=True
                )
            self.step += 1

    @torch.no_grad()
    def evaluate(self):
        net, miss = self.model.module.eval(), 0.0
        for images, maps in self.val_loader:
            counts = net(images).sum((1, 2, 3))
            miss += (counts - maps.sum((1, 2, 3))).abs().sum().item()
        return miss / len(self.val_loader.dataset)

    def fit(self):
        epoch = 0
        while self.step < self.args.steps:
            self.train_epoch(epoch)
            if self.rank == 0:
                error = self.evaluate()
                print(f"epoch {epoch} counts miss by {error:.4f}", flush=True)
                if error < self.best:
                    self.best = error
                    torch.save(self.model.module.state_dict(), self.best_path)
            dist.barrier()
            epoch += 1
        self.model.module.load_state_dict(torch.load(self.best_path, weights_only=True))
        if self.rank == 0:
            print(f"best weights miss by {self.evaluate():.4f}", flush=True)


def worker(rank, world_size, port, args, best_path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    Trainer(rank, args, best_path).fit()
    dist.barrier()
    leave_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        best_path = os.path.join(folder, "best.pt")
        mp.spawn(worker, args=(2, port, args, best_path), nprocs=2)
