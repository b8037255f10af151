"""Forecasts the flow of a pump from its last readings, with a loop by hand on
accelerate: gradients accumulated over four batches, clipped where they are complete, a
scheduler that was prepared, averaged weights. Half-way the state is saved, everything
is built anew, loaded, and the training goes on in the middle of its epoch.

    python accelerate_resumed_pumps.py --steps 80
"""

import argparse
import copy
import math
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_cosine_schedule_with_warmup

WINDOW = 24


class Forecaster(nn.Module):
    def __init__(self, channels=3, width=48):
        super().__init__()
        self.rnn = nn.GRU(channels, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(
            nn.Dropout(0.1), nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 1)
        )

    def forward(self, readings):
        states, _ = self.rnn(readings)
        return self.head(self.norm(states[:, -1])).squeeze(-1)


class AveragedWeights:
    """Follows the parameters; a checkpoint takes it along."""

    def __init__(self, model, decay=0.95):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay
        self.updates = 0

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 10))
        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.lerp_(theirs, 1 - decay)

    def state_dict(self):
        return {"model": self.model.state_dict(), "updates": self.updates}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.updates = state["updates"]


def pump_readings(count, generator):
    t = torch.arange(WINDOW + 1) / 6
    phase = torch.rand(count, 1, generator=generator) * 2 * math.pi
    speed = 0.6 + torch.rand(count, 1, generator=generator)
    wear = torch.rand(count, 1, generator=generator)
    flow = torch.sin(speed * t + phase) * (1 - 0.5 * wear)
    pressure = torch.cos(speed * t + phase) + 0.3 * wear
    heat = wear + 0.1 * torch.randn(count, WINDOW + 1, generator=generator)
    data = torch.stack([flow, pressure, heat], dim=-1)
    data = data + 0.03 * torch.randn(data.shape, generator=generator)
    return TensorDataset(data[:, :-1], data[:, -1, 0])


class Run:
    def __init__(self, args, train, folder):
        set_seed(args.seed)
        self.args = args
        self.accelerator = Accelerator(
            cpu=True,
            gradient_accumulation_steps=4,
            project_dir=folder,
            dataloader_config=DataLoaderConfiguration(
                use_seedable_sampler=True, data_seed=args.seed
            ),
        )
        model = Forecaster()
        optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01)
        schedule = get_cosine_schedule_with_warmup(optimizer, 5, args.steps)
        loader = DataLoader(train, 16, shuffle=True, drop_last=True)
        prepared = self.accelerator.prepare(model, optimizer, loader, schedule)
        self.model, self.optimizer, self.loader, self.schedule = prepared
        self.average = AveragedWeights(self.accelerator.unwrap_model(self.model))
        self.accelerator.register_for_checkpointing(self.average)
        self.step, self.batches = 0, 0

    def train_until(self, last):
        self.model.train()
        while self.step < last:
            epoch, done = divmod(self.batches, len(self.loader))
            self.loader.set_epoch(epoch)
            rest = self.loader
            if done:
                rest = self.accelerator.skip_first_batches(self.loader, done)
            for readings, target in rest:
                self.train_batch(readings, target)
                if self.step >= last:
                    break

    def train_batch(self, readings, target):
        with self.accelerator.accumulate(self.model):
            loss = nn.functional.smooth_l1_loss(self.model(readings), target)
            self.accelerator.backward(loss)
            if self.accelerator.sync_gradients:
                self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
        self.batches += 1
        if self.accelerator.sync_gradients:
            self.step += 1
            self.average.update(self.accelerator.unwrap_model(self.model))
            if self.step % 5 == 0:
                rate = self.schedule.get_last_lr()[0]
                print(f"step {self.step} loss {loss.item():.4f} rate {rate:.5f}")

    def error(self, held_out):
        readings, target = held_out.tensors
        with torch.inference_mode():
            guess = self.average.model(readings)
        return (guess - target).square().mean().sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=21)
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(args.seed)
    train = pump_readings(1600, generator)
    held_out = pump_readings(400, generator)
    with tempfile.TemporaryDirectory() as folder:
        first = Run(args, train, folder)
        first.train_until(args.steps // 2)
        first.accelerator.save_state(f"{folder}/half")
        print(f"saved at step {first.step}, rmse {first.error(held_out):.4f}")
        second = Run(args, train, folder)
        second.accelerator.load_state(f"{folder}/half")
        second.step, second.batches = first.step, first.batches
        print(f"loaded at step {second.step}, rmse {second.error(held_out):.4f}")
        second.train_until(args.steps)
    print(f"rmse of the averaged weights {second.error(held_out):.4f}")


if __name__ == "__main__":
    main()
