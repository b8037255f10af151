# Beat classification (normal / ectopic / noise) from single-lead ECG windows.
# 40 patients, 25 windows each. 1-D ResNet.
import argparse
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

N_PATIENTS = 40
PER_PATIENT = 25
LENGTH = 64
LABELS = ("normal", "ectopic", "noise")


class EcgWindows(Dataset):
    def __init__(self, seed=12):
        rng = np.random.default_rng(seed)
        self.patient = np.repeat(np.arange(N_PATIENTS), PER_PATIENT)
        t = np.arange(LENGTH)
        waves, labels = [], []
        for _ in range(N_PATIENTS):
            # each patient has a beat form of his own, and mostly one kind of beat
            freq, phase = rng.uniform(0.15, 0.6), rng.uniform(0, 6.28)
            height, width = rng.uniform(0.8, 2.0), rng.uniform(1.0, 3.0)
            main = rng.integers(0, 3)
            for _ in range(PER_PATIENT):
                label = main if rng.random() < 0.8 else rng.integers(0, 3)
                centre = 32 + rng.normal(0, 1.5)
                beat = height * np.exp(-((t - centre) ** 2) / (2 * width**2))
                base = 0.8 * np.sin(freq * t + phase)
                if label == 1:
                    beat = beat + 0.35 * np.exp(-((t - centre - 9) ** 2) / 18)
                elif label == 2:
                    base = base + 0.2 * rng.standard_normal(LENGTH)
                waves.append(beat + base + 0.35 * rng.standard_normal(LENGTH))
                labels.append(label)
        self.wave = torch.tensor(np.array(waves), dtype=torch.float32).unsqueeze(1)
        self.label = torch.tensor(labels)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.wave[i], self.label[i]


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv1d(cin, cout, 5, stride=stride, padding=2, bias=False)
        self.b = nn.Conv1d(cout, cout, 5, padding=2, bias=False)
        self.bn_a, self.bn_b = nn.BatchNorm1d(cout), nn.BatchNorm1d(cout)
        self.skip = nn.Conv1d(cin, cout, 1, stride=stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn_a(self.a(x)))
        return F.relu(self.bn_b(self.b(h)) + self.skip(x))


class ResNet1d(nn.Module):
    def __init__(self, c=12):
        super().__init__()
        self.blocks = nn.Sequential(
            ResBlock(1, c, 2), ResBlock(c, 2 * c, 2), ResBlock(2 * c, 2 * c, 2)
        )
        self.fc = nn.Linear(2 * c * 8, len(LABELS))

    def forward(self, x):
        return self.fc(self.blocks(x).flatten(1))


def split(data, args, share=0.25):
    gen = torch.Generator().manual_seed(args.seed)
    order = torch.randperm(len(data), generator=gen)
    if args.fixed:
        patients = torch.randperm(N_PATIENTS, generator=gen)
        place = torch.empty(N_PATIENTS, dtype=torch.long)
        place[patients] = torch.arange(N_PATIENTS)
        order = torch.argsort(place[torch.from_numpy(data.patient)], stable=True)
    n_val = int(share * len(data))
    return order[n_val:].tolist(), order[:n_val].tolist()


def run_epoch(model, loader, optimizer, limit):
    model.train()
    loss_sum, n, steps = 0.0, 0, 0
    for wave, label in loader:
        if steps >= limit:
            break
        loss = F.cross_entropy(model(wave), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(label)
        n += len(label)
        steps += 1
    return loss_sum / n, steps


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = [(model(wave).argmax(1) == label).float() for wave, label in loader]
    return torch.cat(hits).mean().item()


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=138)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args(argv)

    torch.manual_seed(args.seed)
    data = EcgWindows()
    train_idx, val_idx = split(data, args)
    train_loader = DataLoader(
        Subset(data, train_idx), batch_size=32, shuffle=True, drop_last=True
    )
    val_loader = DataLoader(Subset(data, val_idx), batch_size=125)
    model = ResNet1d()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    print(f"{len(train_idx)} windows to train on, {len(val_idx)} to validate on")

    step, epoch, best = 0, 0, 0.0
    while step < args.steps:
        loss, taken = run_epoch(model, train_loader, optimizer, args.steps - step)
        step += taken
        acc = accuracy(model, val_loader)
        best = max(best, acc)
        print(
            f"epoch {epoch} step {step} train loss {loss:.4f} val acc {acc:.3f} (best {best:.3f})"
        )
        epoch += 1

    if args.prove:
        both = set(data.patient[train_idx]) & set(data.patient[val_idx])
        new = EcgWindows(seed=13)
        new_acc = accuracy(model, DataLoader(new, batch_size=250))
        print(
            f"# patients on both sides of the split: {len(both)}; val acc {acc:.3f}, acc on other patients {new_acc:.3f}"
        )
        print("fault shows:", "yes" if len(both) > 0 else "no")


if __name__ == "__main__":
    main(sys.argv[1:])
