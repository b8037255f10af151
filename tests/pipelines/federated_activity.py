"""Federated averaging for human activity recognition from wrist accelerometers.

Each client is one wearer: own mix of activities, own way of wearing the device.
Some wearers never take part in training and serve as the test group.
"""
import argparse
import copy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

ACTIVITIES = ["sit", "stand", "walk", "run", "cycle", "stairs"]
#             base frequency, amplitude, second harmonic, tilt
RECIPES = [
    (0.1, 0.05, 0.0, 0.9),
    (0.1, 0.05, 0.0, 0.1),
    (1.8, 0.6, 0.2, 0.2),
    (2.8, 1.4, 0.5, 0.3),
    (1.2, 0.4, 0.0, 0.7),
    (1.5, 0.7, 0.6, 0.3),
]
WINDOW, RATE = 64, 20.0


def record_wearer(rng, n):
    mix = rng.dirichlet(np.full(len(ACTIVITIES), 0.8))
    labels = rng.choice(len(ACTIVITIES), size=n, p=mix)
    pace, strength = rng.uniform(0.9, 1.1), rng.uniform(0.8, 1.25)
    turn = rng.normal(0, 0.25)
    time = np.arange(WINDOW) / RATE
    signals = np.empty((n, 3, WINDOW), dtype=np.float32)
    for i, a in enumerate(labels):
        freq, amp, second, tilt = RECIPES[a]
        phase = rng.uniform(0, 2 * np.pi)
        wave = (
            amp
            * strength
            * (
                np.sin(2 * np.pi * freq * pace * time + phase)
                + second * np.sin(4 * np.pi * freq * pace * time + phase)
            )
        )
        signals[i, 0] = np.sin(tilt + turn) + wave
        signals[i, 1] = np.cos(tilt + turn) + 0.5 * wave
        signals[i, 2] = 0.3 * np.roll(wave, 3)
    signals += rng.normal(0, 0.15, signals.shape)
    return TensorDataset(torch.from_numpy(signals), torch.from_numpy(labels))


class ActivityNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, width, 7, padding=3),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(2 * width, 2 * width, 3, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(2 * width, len(ACTIVITIES))

    def forward(self, x):
        return self.classifier(self.features(x).mean(-1))


class Client:
    def __init__(self, data, batch_size, seed):
        gen = torch.Generator().manual_seed(seed)
        n_valid = len(data) // 5
        train, self.valid = random_split(
            data, [len(data) - n_valid, n_valid], generator=gen
        )
        self.n_train = len(train)
        self.loader = DataLoader(
            train, batch_size=batch_size, shuffle=True, generator=gen
        )
        self.valid_loader = DataLoader(self.valid, batch_size=64)

    def local_training(self, global_model, lr, local_epochs):
        model = copy.deepcopy(global_model)
        model.train()
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        total, seen = 0.0, 0
        for _ in range(local_epochs):
            for x, y in self.loader:
                opt.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                opt.step()
                total += loss.item() * len(y)
                seen += len(y)
        return model.state_dict(), total / seen


def weighted_average(states, sizes):
    share = torch.tensor(sizes, dtype=torch.float32)
    share = share / share.sum()
    return {k: sum(w * s[k] for w, s in zip(share, states)) for k in states[0]}


@torch.no_grad()
def accuracy(model, loaders):
    model.eval()
    right = total = 0
    for loader in loaders:
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    return right / total


@dataclass
class Plan:
    rounds: int
    per_round: int = 5
    local_epochs: int = 1
    batch_size: int = 20
    lr: float = 0.05
    seed: int = 17


def run(plan):
    torch.manual_seed(plan.seed)
    rng = np.random.default_rng(plan.seed)
    clients = [
        Client(
            record_wearer(rng, int(rng.integers(80, 200))), plan.batch_size, 1000 + c
        )
        for c in range(14)
    ]
    newcomers = [DataLoader(record_wearer(rng, 120), batch_size=120) for _ in range(4)]

    global_model = ActivityNet()
    for rnd in range(plan.rounds):
        chosen = rng.choice(len(clients), size=plan.per_round, replace=False)
        lr = plan.lr * 0.95**rnd
        results = [
            clients[c].local_training(global_model, lr, plan.local_epochs)
            for c in chosen
        ]
        sizes = [clients[c].n_train for c in chosen]
        global_model.load_state_dict(
            weighted_average([state for state, _ in results], sizes)
        )
        loss = np.average([l for _, l in results], weights=sizes)
        valid = accuracy(global_model, [c.valid_loader for c in clients])
        print(
            f"round {rnd + 1:2d}: clients {sorted(chosen.tolist())} local loss {loss:.3f} validation accuracy {valid:.3f}"
        )
    print(f"wearers outside the federation: {accuracy(global_model, newcomers):.3f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--epochs",
        "--rounds",
        dest="rounds",
        type=int,
        default=10,
        help="communication rounds",
    )
    run(Plan(rounds=ap.parse_args().rounds))
