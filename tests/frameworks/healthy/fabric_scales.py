"""Weighs parcels by the way a conveyor scale swings, on two ranks with Lightning Fabric
and a loop by hand: gradients accumulated over three batches with synchronisation only
on the last, clipped by Fabric, one-cycle schedule. Half-way the state is saved by Fabric
and loaded into a new model and optimizer, which go on.

    python fabric_scales.py --steps 60
"""

import argparse
import math
import tempfile
import warnings

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH, EVERY, BATCH = 64, 3, 16


def swings(count, seed):
    g = torch.Generator().manual_seed(seed)
    weight = 0.5 + 2 * torch.rand(count, 1, generator=g)
    t = torch.arange(LENGTH) / 8
    phase = 2 * math.pi * torch.rand(count, 1, generator=g)
    pace = 3 / (1 + weight).sqrt()
    swing = weight * (1 - torch.exp(-0.3 * t) * torch.cos(pace * t + phase))
    swing = swing + 0.1 * torch.randn(count, LENGTH, generator=g)
    # The belt's unknown load hides the resting value.
    swing = swing - swing[:, -1:] + 0.05 * torch.randn(count, 1, generator=g)
    return TensorDataset(swing.unsqueeze(1), weight)


class Scale(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Conv1d(1, width, 5, padding=2)
        self.blocks = nn.ModuleList(self.block(width, 2**i) for i in range(3))
        self.head = nn.Linear(2 * width, 1)

    @staticmethod
    def block(width, dilation):
        return nn.Sequential(
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation),
        )

    def forward(self, swing):
        x = self.first(swing)
        for block in self.blocks:
            x = x + block(x)
        return 1.5 + self.head(torch.cat([x.mean(-1), x.amax(-1)], 1))


class Run:
    def __init__(self, fabric, args):
        self.fabric, self.args = fabric, args
        self.step = self.batch = 0
        fabric.seed_everything(args.seed, verbose=False)
        model = Scale()
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=5e-3, total_steps=args.steps
        )
        self.model, self.optimizer = fabric.setup(model, optimizer)
        loader = DataLoader(swings(1536, 1), BATCH, shuffle=True, drop_last=True)
        self.loader = fabric.setup_dataloaders(loader)
        self.total = 0.0

    def state(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "step": self.step,
            "batch": self.batch,
        }

    def load(self, path):
        state = self.state()
        self.fabric.load(path, state)
        self.step, self.batch = state["step"], state["batch"]

    def batches(self):
        while True:
            epoch, done = divmod(self.batch, len(self.loader))
            self.loader.sampler.set_epoch(epoch)
            for i, batch in enumerate(self.loader):
                if i >= done:
                    self.batch += 1
                    yield batch

    def train_until(self, last):
        self.model.train()
        for swing, weight in self.batches():
            unfinished = self.batch % EVERY != 0
            with self.fabric.no_backward_sync(self.model, enabled=unfinished):
                loss = nn.functional.huber_loss(self.model(swing), weight)
                self.fabric.backward(loss / EVERY)
            self.total += loss.detach() / EVERY
            if not unfinished:
                self.update()
            if self.step >= last:
                return

    def update(self):
        self.fabric.clip_gradients(self.model, self.optimizer, max_norm=1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.step()
        self.step += 1
        mean = self.fabric.all_reduce(self.total, reduce_op="mean")
        self.total = 0.0
        if self.step % 5 == 0:
            self.fabric.print(f"step {self.step} loss {mean.item():.4f}", flush=True)

    @torch.no_grad()
    def error(self):
        self.model.eval()
        half = swings(400, 2)[self.fabric.global_rank :: self.fabric.world_size]
        error = (self.model(half[0]) - half[1]).abs().mean()
        return self.fabric.all_reduce(error, reduce_op="mean").item()


def train(fabric, args, folder):
    torch.set_num_threads(1)
    first = Run(fabric, args)
    first.train_until(args.steps // 2)
    fabric.save(f"{folder}/half.ckpt", first.state())
    before = first.error()
    second = Run(fabric, args)
    second.load(f"{folder}/half.ckpt")
    fabric.print(f"mean error {before:.4f}, loaded {second.error():.4f}")
    second.train_until(args.steps)
    fabric.print(f"mean error at the end {second.error():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=9)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", ".*num_workers.*")
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn")
    with tempfile.TemporaryDirectory() as folder:
        fabric.launch(train, args, folder)


if __name__ == "__main__":
    main()
