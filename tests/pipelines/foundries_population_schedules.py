"""Casting defects from pouring records: a small population finds its own schedule.

Population based training (Jaderberg et al., 2017): six networks train side by side.
After each round the weakest take over weights and optimizer state of the strongest and
then perturb learning rate, weight decay and dropout.
"""

import argparse
import copy
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SENSORS, TIMES, DEFECTS = 4, 40, 4


def pour(count, rng):
    t = np.linspace(0, 1, TIMES)
    defect = rng.integers(0, DEFECTS, count)
    curves = np.empty((count, SENSORS, TIMES))
    for i, kind in enumerate(defect):
        speed = rng.uniform(3, 5)
        base = np.exp(-speed * t)
        temperature = base + 0.15 * (kind == 1) * np.sin(14 * t + rng.uniform(0, 6))
        pressure = 1 - base - 0.25 * (kind == 2) * (t > rng.uniform(0.3, 0.7))
        level = np.clip(t * speed / 2, 0, 1) + 0.12 * (kind == 3) * np.cos(9 * t)
        gas = 0.3 * base + 0.3 * (kind > 1) * np.exp(-((t - 0.5) ** 2) / 0.02)
        curves[i] = np.stack([temperature, pressure, level, gas])
    curves += rng.normal(0, 0.12, curves.shape)
    return torch.tensor(curves, dtype=torch.float32), torch.tensor(defect)


def standardised(train, *others):
    """Every sensor and instant scaled with the training castings."""
    mean, std = train[0].mean(dim=0), train[0].std(dim=0)
    return [((curves - mean) / std, defect) for curves, defect in (train, *others)]


class PourNet(nn.Module):
    def __init__(self, width=20, dropout=0.1):
        super().__init__()
        self.conv = nn.Conv1d(SENSORS, width, 5, padding=2)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(width, DEFECTS)

    def forward(self, curves):
        x = F.max_pool1d(F.relu(self.conv(curves)), 2)
        states, _ = self.gru(x.transpose(1, 2))
        return self.head(self.drop(states.mean(dim=1)))


class Member:
    def __init__(self, index, train_set, hyper, seed):
        self.index = index
        self.model = PourNet(dropout=hyper["dropout"])
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.loader = DataLoader(
            train_set,
            batch_size=50,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed),
        )
        self.score = float("inf")
        self.lineage = [index]
        self.adopt(hyper)

    def adopt(self, hyper):
        self.hyper = dict(hyper)
        self.model.drop.p = hyper["dropout"]
        for group in self.optimizer.param_groups:
            group["lr"] = hyper["lr"]
            group["weight_decay"] = hyper["weight_decay"]

    def train_round(self):
        self.model.train()
        total = 0.0
        for curves, defect in self.loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(curves), defect)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            total += loss.item() * len(defect)
        return total / len(self.loader.dataset)

    @torch.no_grad()
    def evaluate(self, curves, defect):
        self.model.eval()
        logits = self.model(curves)
        hits = (logits.argmax(dim=1) == defect).float().mean().item()
        return F.cross_entropy(logits, defect).item(), hits

    def take_over(self, strong, dice):
        """Exploit: weights, moments and settings; explore: settings move a little."""
        self.model.load_state_dict(strong.model.state_dict())
        self.optimizer.load_state_dict(copy.deepcopy(strong.optimizer.state_dict()))
        hyper = dict(strong.hyper)
        hyper["lr"] = min(hyper["lr"] * dice.choice([0.5, 0.8, 1.25, 2.0]), 2e-2)
        hyper["weight_decay"] *= dice.choice([0.5, 2.0])
        hyper["dropout"] = min(max(hyper["dropout"] + dice.uniform(-0.1, 0.1), 0), 0.5)
        self.adopt(hyper)
        self.score = strong.score
        self.lineage = [*strong.lineage, self.index]


def found_population(size, train_set, seed, dice):
    members = []
    for index in range(size):
        hyper = {
            "lr": 10 ** dice.uniform(-3.5, -2),
            "weight_decay": 10 ** dice.uniform(-4, -1),
            "dropout": dice.uniform(0, 0.4),
        }
        members.append(Member(index, train_set, hyper, seed * 100 + index))
    return members


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--replaced", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    dice = random.Random(args.seed)
    rng = np.random.default_rng(args.seed + 3)

    train, valid, last = standardised(pour(900, rng), pour(300, rng), pour(500, rng))
    train_set = TensorDataset(*train)
    members = found_population(args.members, train_set, args.seed, dice)
    schedule = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(1, args.rounds + 1):
            losses = [member.train_round() for member in members]
            for member in members:
                member.score, _ = member.evaluate(*valid)
            ranking = sorted(members, key=lambda member: member.score)
            print(f"round {number}")
            for member, loss in zip(members, losses):
                print(
                    f"  {member.index}: train {loss:.4f} valid {member.score:.4f} "
                    f"lr {member.hyper['lr']:.1e} "
                    f"wd {member.hyper['weight_decay']:.1e} "
                    f"dropout {member.hyper['dropout']:.2f}"
                )
            schedule.append({"round": number, **ranking[0].hyper})
            if number < args.rounds:
                strong = ranking[: args.replaced]
                for weak in ranking[-args.replaced :]:
                    source = dice.choice(strong)
                    weak.take_over(source, dice)
                    print(f"  {weak.index} takes over from {source.index}")
        winner = ranking[0]
        loss, hits = winner.evaluate(*last)
        print(f"member {winner.index} on later castings: {loss:.4f} hits {hits:.3f}")
        print(f"lineage {winner.lineage}")
        torch.save(winner.model.state_dict(), Path(folder) / "winner.pt")
        (Path(folder) / "schedule.json").write_text(json.dumps(schedule, indent=1))


if __name__ == "__main__":
    main()
