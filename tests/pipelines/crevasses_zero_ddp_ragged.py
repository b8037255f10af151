"""Crevasses or drifts of snow, from patches of radar (conv2d), DDP on two ranks.

ZeroRedundancyOptimizer, whose states are gathered on rank 0 for the file; `no_sync`
accumulation over three batches, the last group of an epoch is smaller and counts what
it holds; clipping after the reduction. Half-way everything is saved, dropped and loaded
in the same processes, with a random state for each rank (dropout differs by rank).
Evaluation on unequal shares on the bare module, summed.
"""

import argparse
import contextlib
import os
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

WORLD, MICRO, ACCUM, LR = 2, 16, 3, 4e-3


def patches(n, seed):
    r = np.random.default_rng(seed)
    y = r.integers(0, 3, n)
    yy, xx = np.mgrid[0:16, 0:16]
    x = np.empty((n, 1, 16, 16), np.float32)
    for i, k in enumerate(y):
        if k == 0:  # crevasse: a dark slanted slit
            th = r.uniform(-0.5, 0.5)
            im = -1.6 * (np.abs((xx - r.uniform(5, 11)) - np.tan(th) * (yy - 8)) < 1.2)
        elif k == 1:  # buried crevasse: a hyperbola of echoes
            top = r.uniform(2, 6)
            im = 1.3 * (np.abs(yy - np.hypot(top, 1.1 * (xx - r.uniform(5, 11)))) < 1.0)
        else:  # drift: layers
            im = 0.7 * np.cos(yy * r.uniform(0.8, 1.2) + r.uniform(0, 6) + 0.1 * xx)
        x[i, 0] = im + 1.7 * r.standard_normal((16, 16))
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


def build():
    # group norm: statistics of 16 patches would be poor
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.GroupNorm(4, 32),
        nn.GELU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 16, 3),
    )


class Session:
    """Everything that lives between two stops of the job."""

    def __init__(self, rank, epochs):
        torch.manual_seed(0)  # the same start everywhere
        self.model = DDP(build())
        self.opt = ZeroRedundancyOptimizer(
            self.model.parameters(),
            optimizer_class=torch.optim.AdamW,
            lr=LR,
            weight_decay=0.02,
        )
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.opt, epochs, eta_min=LR / 20
        )
        self.rank, self.epoch = rank, 0
        torch.manual_seed(1000 + rank)  # from here on: dropout differs by rank

    def save(self, folder):
        self.opt.consolidate_state_dict(
            to=0
        )  # collective: all ranks send their moments
        if self.rank == 0:
            parts = {"model": self.model.module, "opt": self.opt, "sched": self.sched}
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**state, "epoch": self.epoch}, f"{folder}/run.pt")
        torch.save(torch.get_rng_state(), f"{folder}/rng{self.rank}.pt")
        dist.barrier()  # nobody reads before the file is complete

    def load(self, folder):
        ck = torch.load(f"{folder}/run.pt", weights_only=True)
        self.model.module.load_state_dict(ck["model"])
        self.opt.load_state_dict(ck["opt"])  # full state in, each rank keeps its shard
        self.sched.load_state_dict(ck["sched"])
        self.epoch = ck["epoch"]
        torch.set_rng_state(torch.load(f"{folder}/rng{self.rank}.pt"))
        return self


def groups(loader, size):
    buf = []
    for batch in loader:
        buf.append(batch)
        if len(buf) == size:
            yield buf
            buf = []
    if buf:
        yield buf  # the ragged end is used, not dropped


def train_epoch(ses, data):
    # 440 patches: 220 a rank, nothing to pad -> 13 full micro-batches and one of 12
    sampler = DistributedSampler(data, WORLD, ses.rank, shuffle=True, seed=7)
    sampler.set_epoch(ses.epoch)
    ses.model.train()
    total = torch.zeros(2)
    for group in groups(DataLoader(data, MICRO, sampler=sampler), ACCUM):
        held = sum(len(y) for _, y in group)  # the same on both ranks
        ses.opt.zero_grad()
        for k, (x, y) in enumerate(group):
            last = k == len(group) - 1
            with contextlib.nullcontext() if last else ses.model.no_sync():
                loss = F.cross_entropy(ses.model(x), y, reduction="sum") / held
                loss.backward()  # DDP averages over ranks at the last one
            total += torch.tensor([loss.item() * held, len(y)])
        nn.utils.clip_grad_norm_(ses.model.parameters(), 2.0)
        ses.opt.step()
    ses.sched.step()
    ses.epoch += 1
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def evaluate(ses, data):
    # shares of 151 and 150, so nothing is counted twice; the bare module is called, as
    # ranks have unequal numbers of batches
    net = ses.model.module.eval()
    counts = torch.zeros(2)
    for x, y in DataLoader(Subset(data, range(ses.rank, len(data), WORLD)), 50):
        counts += torch.tensor([(net(x).argmax(1) == y).sum().item(), len(y)])
    dist.all_reduce(counts)
    assert counts[1] == len(data)
    return (counts[0] / counts[1]).item()


def worker(rank, port, folder, epochs):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    train, test = patches(440, 1), patches(301, 2)
    ses = Session(rank, epochs)
    while ses.epoch < epochs:
        if ses.epoch == epochs // 2:
            ses.save(folder)
            del ses
            ses = Session(rank, epochs).load(folder)
            if rank == 0:
                lr = ses.sched.get_last_lr()[0]
                print(f"restored at epoch {ses.epoch}, lr {lr:.2e}", flush=True)
        loss = train_epoch(ses, train)
        if rank == 0:
            print(f"epoch {ses.epoch:2d}  loss {loss:.4f}", flush=True)
    acc = evaluate(ses, test)
    if rank == 0:
        print(f"test accuracy {acc:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(free, tmp, options.epochs), nprocs=WORLD)
