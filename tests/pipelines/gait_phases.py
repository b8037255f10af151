"""Which phase of the step is a leg in? Six channels of a sensor on the shin, one label
for every time step. All tensors are time-major (T, B, ...), as nn.LSTM likes them by
default; a recording is cut in windows along the first axis.

    python gait_phases.py --steps 24
"""

import argparse

import numpy as np
import torch
import torch.nn as nn

PHASES = ["stance", "push-off", "swing", "landing"]
T = 50


def record(walkers, seconds, seed):
    """-> signals (time, walkers, 6), phases (time, walkers); 50 Hz"""
    rng = np.random.RandomState(seed)
    n = seconds * 50
    pace = rng.uniform(0.8, 1.3, size=walkers) + 0.05 * rng.randn(n, walkers)
    cycle = (np.cumsum(pace / 50.0, axis=0) + rng.rand(walkers)) % 1.0
    phase = np.digitize(cycle, [0.5, 0.62, 0.9])
    angle = 2 * np.pi * cycle
    mount = rng.uniform(-0.4, 0.4, size=walkers)  # nobody straps it on straight
    sig = np.stack(
        [
            np.sin(angle + mount),
            np.cos(angle + mount),
            np.sin(2 * angle) * (phase == 2),
            np.exp(-(((cycle - 0.95) / 0.03) ** 2)),
            np.exp(-(((cycle - 0.56) / 0.05) ** 2)),
            0.3 * np.cos(3 * angle),
        ],
        axis=-1,
    )
    sig = sig + 0.25 * rng.randn(*sig.shape)
    return torch.from_numpy(sig).float(), torch.from_numpy(phase).long()


def windows(sig, phase, length=T):
    """(time, walkers, C) -> (length, windows * walkers, C), and the same for labels"""
    k = sig.shape[0] // length
    sig = torch.cat(sig[: k * length].chunk(k, dim=0), dim=1)
    phase = torch.cat(phase[: k * length].chunk(k, dim=0), dim=1)
    return sig, phase


class GaitNet(nn.Module):
    def __init__(self, channels=6, hidden=40, classes=len(PHASES)):
        super().__init__()
        self.inp = nn.Linear(channels, hidden)
        self.rnn = nn.LSTM(hidden, hidden, num_layers=2, dropout=0.1)
        # learnt initial state, one for each layer
        self.h0 = nn.Parameter(torch.zeros(2, 1, hidden))
        self.c0 = nn.Parameter(torch.zeros(2, 1, hidden))
        self.out = nn.Linear(hidden, classes)

    def forward(self, x):
        B = x.size(1)
        state = (
            self.h0.expand(-1, B, -1).contiguous(),
            self.c0.expand(-1, B, -1).contiguous(),
        )
        y, _ = self.rnn(torch.relu(self.inp(x)), state)
        return self.out(y)  # T, B, classes


def confusion(net, x, y):
    net.eval()
    with torch.inference_mode():
        guess = net(x).argmax(dim=2)
    net.train()
    table = torch.zeros(len(PHASES), len(PHASES), dtype=torch.long)
    table.index_put_((y.flatten(), guess.flatten()), torch.tensor(1), accumulate=True)
    return table


ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=24)
ap.add_argument("--batch", type=int, default=32)
ap.add_argument("--lr", type=float, default=0.01)


def run(steps, batch, lr):
    torch.set_num_threads(1)
    torch.manual_seed(17)
    train_x, train_y = windows(*record(walkers=24, seconds=20, seed=0))
    test_x, test_y = windows(*record(walkers=6, seconds=12, seed=99))
    mu = train_x.mean(dim=(0, 1), keepdim=True)
    sd = train_x.std(dim=(0, 1), keepdim=True)
    train_x, test_x = (train_x - mu) / sd, (test_x - mu) / sd

    # push-off and landing are short
    freq = torch.bincount(train_y.flatten(), minlength=len(PHASES)).float()
    weight = (freq.sum() / freq).sqrt()
    criterion = nn.CrossEntropyLoss(weight=weight / weight.mean())

    net = GaitNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=lr, alpha=0.95)
    order = torch.randperm(train_x.size(1))
    at = 0
    for it in range(steps):
        if at + batch > len(order):
            order, at = torch.randperm(train_x.size(1)), 0
        pick = order[at : at + batch]
        at += batch
        x, y = train_x[:, pick], train_y[:, pick]
        logits = net(x)
        # N is T * B here: cross entropy does not mind which comes first
        loss = criterion(logits.reshape(T * batch, -1), y.reshape(T * batch))
        net.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        print("iter %d  loss %.4f" % (it, loss.item()))
        if it % 8 == 7:
            table = confusion(net, test_x, test_y)
            recall = table.diag() / table.sum(1).clamp(min=1)
            print(" ".join(f"{p} {r:.2f}" for p, r in zip(PHASES, recall.tolist())))


if __name__ == "__main__":
    run(**vars(ap.parse_args()))
