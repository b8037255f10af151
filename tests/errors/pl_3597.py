"""PL-3597: the best checkpoint is chosen by the validation of the first rank alone.

Source: https://github.com/Lightning-AI/pytorch-lightning/issues/3597. Each rank
validates its share, and the callback of the first rank gets the number of that share:
what it writes into the checkpoint, and by which it keeps one, is not the error over the
validation set. --fixed averages over the ranks before the callback is asked.
"""

import argparse
import os
import socket
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PAST, AHEAD, STEPS_PER_EPOCH, WORLD = 24, 6, 4, 2


def household_load(days, seed):
    """Hourly load with a day's rhythm; the level wanders, the noise comes in spells."""
    rng = np.random.default_rng(seed)
    hour = np.arange(24 * days)
    level = 3 + np.cumsum(rng.normal(0, 0.02, hour.size))
    spell = np.where((hour // 60) % 2 == 0, 0.1, 0.6)
    load = level + np.sin(2 * np.pi * hour / 24) + spell * rng.normal(size=hour.size)
    windows = np.lib.stride_tricks.sliding_window_view(load, PAST + AHEAD)[::5]
    windows = torch.tensor(windows.copy(), dtype=torch.float32)
    return TensorDataset(windows[:, :PAST], windows[:, PAST:])


class DLinear(nn.Module):
    """Trend and rest of a window, each forecast by a linear layer."""

    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool1d(5, stride=1, padding=2, count_include_pad=False)
        self.trend, self.rest = nn.Linear(PAST, AHEAD), nn.Linear(PAST, AHEAD)

    def forward(self, past):
        trend = self.pool(past.unsqueeze(1)).squeeze(1)
        return self.trend(trend) + self.rest(past - trend)


class ModelCheckpoint:
    def __init__(self, path):
        self.path, self.best = path, float("inf")

    def on_validation_end(self, model, epoch, metrics):
        if metrics["val_loss"] >= self.best:
            return
        self.best = metrics["val_loss"]
        state = {
            "epoch": epoch,
            "val_loss": self.best,
            "state_dict": model.state_dict(),
        }
        torch.save(state, self.path)
        print(f"epoch {epoch}: val_loss {self.best:.4f}, saved", flush=True)


class Trainer:
    def __init__(self, rank, args, callback):
        self.rank, self.args, self.callback = rank, args, callback
        torch.manual_seed(33)
        self.model = DDP(DLinear())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.data = household_load(80, seed=1)
        self.held_out = household_load(42, seed=2)
        self.step = 0

    def training_epoch(self, epoch):
        sampler = DistributedSampler(self.data, WORLD, self.rank, seed=7)
        sampler.set_epoch(epoch)
        loader = DataLoader(self.data, batch_size=16, sampler=sampler)
        for (past, future), _ in zip(loader, range(STEPS_PER_EPOCH)):
            if self.step == self.args.steps:
                return
            loss = nn.functional.mse_loss(self.model(past), future)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.rank == 0:
                print(f"step {self.step} train_loss {loss.item():.4f}", flush=True)
            self.step += 1

    @torch.no_grad()
    def validation_epoch(self):
        self.model.eval()
        sampler = DistributedSampler(self.held_out, WORLD, self.rank, shuffle=False)
        total, count = torch.zeros(()), 0
        for past, future in DataLoader(self.held_out, 32, sampler=sampler):
            error = (self.model.module(past) - future).square().mean(1)
            total, count = total + error.sum(), count + len(past)
        self.model.train()
        val_loss = total / count
        if self.args.fixed:
            dist.all_reduce(val_loss)
            val_loss /= WORLD
        return {"val_loss": val_loss.item()}

    def fit(self):
        epochs = -(-self.args.steps // STEPS_PER_EPOCH)
        for epoch in range(epochs):
            self.training_epoch(epoch)
            metrics = self.validation_epoch()
            if self.rank == 0:
                self.callback.on_validation_end(self.model.module, epoch, metrics)


@torch.no_grad()
def says_what_it_is(path, held_out):
    """Whether the file's error is that of its weights over all validation windows."""
    saved = torch.load(path)
    model = DLinear()
    model.load_state_dict(saved["state_dict"])
    error = nn.functional.mse_loss(model(held_out.tensors[0]), held_out.tensors[1])
    return abs(error.item() - saved["val_loss"]) < 2e-3 * saved["val_loss"]


def work(rank, args, port, folder):
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    trainer = Trainer(rank, args, ModelCheckpoint(os.path.join(folder, "best.ckpt")))
    trainer.fit()
    if args.prove and rank == 0:
        right = says_what_it_is(trainer.callback.path, trainer.held_out)
        print("fault shows:", "no" if right else "yes", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for flag in ("--fixed", "--prove"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--steps", type=int, default=24)
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (arguments, port, folder), nprocs=WORLD)
