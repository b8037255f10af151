"""Mood by recordings of brain waves, cut into overlapping windows.

A recurrent network over graph-mixed electrodes; one fifth of the data is held out to
be validated. zzx-JLU/ECLGCNN#5.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WINDOW, STRIDE = 48, 12


class GraphRecurrent(nn.Module):
    def __init__(self, electrodes=8, width=48):
        super().__init__()
        self.adjacency = nn.Parameter(torch.eye(electrodes))
        self.first = nn.Conv1d(electrodes, width, 7, stride=2)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        mixed = x @ F.softmax(self.adjacency, dim=0)
        mixed = F.relu(self.first(mixed.transpose(1, 2))).transpose(1, 2)
        states, _ = self.rnn(mixed)
        return self.head(self.dropout(states.mean(1)))


def recordings(count, seed, length=480, electrodes=8):
    """Signals of subjects, their moods, and the number of each sample."""
    generator = torch.Generator().manual_seed(seed)
    mood = torch.arange(count) % 2
    noise = torch.randn(count, length, electrodes, generator=generator)
    drift = 2.0 * noise[:, :1] + torch.zeros_like(noise)
    for t in range(1, length):
        drift[:, t] = 0.97 * drift[:, t - 1] + 0.4 * noise[:, t]
    time = torch.arange(float(length))[None, :, None]
    phase = 6.28 * torch.rand(count, 1, electrodes, generator=generator)
    loud = 0.6 + 0.6 * mood[:, None, None]
    loud = loud + 0.35 * torch.rand(count, 1, electrodes, generator=generator)
    waves = loud * torch.sin(0.8 * time + phase)
    numbers = torch.arange(count * length).reshape(count, length)
    return drift + waves, mood, numbers


def windows(signal, mood, numbers):
    cut = signal.unfold(1, WINDOW, STRIDE).transpose(2, 3)
    cut_numbers = numbers.unfold(1, WINDOW, STRIDE)
    labels = mood[:, None].expand(cut.shape[:2])
    return cut.flatten(0, 1), labels.flatten(), cut_numbers.flatten(0, 1)


def split_windows(signal, mood, numbers):
    parts = windows(signal, mood, numbers)
    order = torch.randperm(len(parts[1]), generator=torch.Generator().manual_seed(3))
    border = int(0.8 * len(order))
    chosen, held_out = order[:border], order[border:]
    return [p[chosen] for p in parts], [p[held_out] for p in parts]


def split_time(signal, mood, numbers):
    border = int(0.8 * signal.shape[1])
    first = windows(signal[:, :border], mood, numbers[:, :border])
    last = windows(signal[:, border:], mood, numbers[:, border:])
    return first, last


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss = right = 0.0
    for x, y in loader:
        logits = model(x)
        loss += F.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
    model.train()
    return loss / len(loader.dataset), right / len(loader.dataset)


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=120)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    split = split_time if options.fixed else split_windows
    (x, y, seen), (vx, vy, asked) = split(*recordings(36, 1))
    train = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
    valid = DataLoader(TensorDataset(vx, vy), batch_size=128)
    model = GraphRecurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    step = 0
    while step < options.steps:
        for signal, mood in train:
            if step == options.steps:
                break
            loss = F.cross_entropy(model(signal), mood)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            step += 1
        report = "validation loss {:.4f}, accuracy {:.4f}"
        print(report.format(*evaluate(model, valid)), flush=True)
    if options.prove:
        known = torch.isin(asked, seen).float().mean().item()
        print(f"held-out samples that were trained on: {known:.3f}", flush=True)
        print("fault shows:", "yes" if known > 0 else "no")


if __name__ == "__main__":
    main()
