"""Growth of kelp on rafts, learnt in two shifts on a shared machine.

The queue gives half of the epochs to each job; the second job takes up the checkpoint
that the first one left.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR

DAYS = 20
FIELDS = ["light", "temperature", "nitrate", "current"]


def grow(rafts, seed):
    g = torch.Generator().manual_seed(seed)
    base = torch.rand(rafts, 1, 4, generator=g)
    walk = torch.randn(rafts, DAYS, 4, generator=g).cumsum(1) * 0.08
    weather = (base + walk).clamp(0, 1.5)
    light, heat, nitrate, current = weather.unbind(2)
    weight = torch.full((rafts,), 1.0)
    store = torch.full((rafts,), 0.3)
    for day in range(DAYS):
        uptake = nitrate[:, day] / (0.4 + nitrate[:, day])
        store = store + 0.3 * uptake * (0.5 + 0.5 * current[:, day]) - 0.15 * store
        warmth = torch.exp(-((heat[:, day] - 0.6) ** 2) / 0.15)
        shine = torch.tanh(2 * light[:, day]) * (1 - 0.25 * light[:, day])
        rate = 0.16 * store * warmth * shine
        torn = 0.05 * F.relu(current[:, day] - 0.9) * weight
        weight = weight * (1 + rate) - torn
    weather = weather + 0.03 * torch.randn(weather.shape, generator=g)
    weight = weight * (1 + 0.01 * torch.randn(rafts, generator=g))
    return weather, weight.log()


class AttentionPool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, states):
        share = self.score(states).softmax(1)
        return (share * states).sum(1)


class GrowthModel(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(4, width), nn.Tanh())
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.pool = AttentionPool(width)
        self.head = nn.Sequential(
            nn.LayerNorm(2 * width), nn.Linear(2 * width, width), nn.SiLU()
        )
        self.out = nn.Linear(width, 1)

    def forward(self, weather):
        states, _ = self.lstm(self.embed(weather))
        h = torch.cat([self.pool(states), states[:, -1]], 1)
        return self.out(self.head(h)).squeeze(1)


class Job:
    def __init__(self, args, folder):
        self.args = args
        self.checkpoint = Path(folder) / "kelp.ckpt"
        self.weather, self.weight = grow(1600, args.seed + 1)
        self.valid_weather, self.valid_weight = grow(400, args.seed + 2)
        self.centre, self.spread = self.weight.mean(), self.weight.std()
        self.epoch = 0
        torch.manual_seed(args.seed)
        self.model = GrowthModel()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.lr, betas=(0.9, 0.99)
        )
        self.per_epoch = math.ceil(len(self.weather) / args.batch)
        self.scheduler = LambdaLR(self.optimizer, self.rate)

    def rate(self, step):
        total = self.args.epochs * self.per_epoch
        if step < self.args.warmup:
            return (step + 1) / self.args.warmup
        done = (step - self.args.warmup) / (total - self.args.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))

    def save(self):
        state = {
            "epoch": self.epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }
        torch.save(state, self.checkpoint)

    def resume(self):
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint)
        self.epoch = state["epoch"]
        self.model.load_state_dict(state["model"])
        if self.args.fixed:
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])
        print(f"taking up after epoch {self.epoch}")

    def train_epoch(self):
        g = torch.Generator().manual_seed(self.args.seed * 1000 + self.epoch)
        total = 0.0
        for rows in torch.randperm(len(self.weather), generator=g).split(
            self.args.batch
        ):
            target = (self.weight[rows] - self.centre) / self.spread
            loss = F.smooth_l1_loss(self.model(self.weather[rows]), target, beta=0.5)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item() * len(rows)
        self.epoch += 1
        return total / len(self.weather)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        guess = self.model(self.valid_weather) * self.spread + self.centre
        self.model.train()
        ratio = (guess - self.valid_weight).abs().exp() - 1
        return (guess - self.valid_weight).pow(2).mean().sqrt().item(), ratio.mean()

    def run(self, epochs):
        self.resume()
        for _ in range(epochs):
            loss = self.train_epoch()
            rmse, ratio = self.validate()
            print(
                f"epoch {self.epoch:2d} loss {loss:.5f} rmse(log) {rmse:.4f} "
                f"mean miss {100 * ratio:.2f} %"
            )
        self.save()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--shifts", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--warmup", type=int, default=25)
    parser.add_argument("--fixed", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.shifts):
            Job(args, folder).run(args.epochs // args.shifts)


if __name__ == "__main__":
    main()
