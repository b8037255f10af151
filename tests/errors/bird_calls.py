"""Bird call classifier on log-spectrogram patches.

Rows are augmented on the fly (time shift, gain, noise, band masking) in two loader workers.
"""
import argparse
import logging
import random
import sys

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("birds")
SPECIES = 4
BANDS, FRAMES = 20, 32
SEED = 1337


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def synth_call(species, rng):
    """A chirp whose band moves over time in a way typical of the species."""
    t = np.arange(FRAMES)
    start = rng.uniform(4, 8)
    track = {
        0: start + 0.3 * t,
        1: start + 8 - 0.25 * t,
        2: start + 4 + 3 * np.sin(t / 2.5),
        3: start + 6 * ((t // 6) % 2),
    }[species]
    bands = np.arange(BANDS)[:, None]
    spec = np.exp(-((bands - track[None]) ** 2) / 1.5)
    return spec.astype(np.float32)


class CallDataset(Dataset):
    def __init__(self, n, seed, training):
        rng = np.random.RandomState(seed)
        self.label = rng.randint(0, SPECIES, n)
        self.spec = np.stack([synth_call(c, rng) for c in self.label])
        self.training = training

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        spec = self.spec[i].copy()
        draw = 0.0
        if self.training:
            draw = np.random.rand()
            spec = np.roll(spec, int(draw * FRAMES), axis=1)
            spec *= np.random.uniform(0.6, 1.4)
            lo = np.random.randint(0, BANDS - 4)
            spec[lo : lo + np.random.randint(1, 5)] = 0
            spec += np.random.normal(0, 0.45, spec.shape).astype(np.float32)
        else:
            noise = np.random.RandomState(i).normal(0, 0.45, spec.shape)
            spec = spec + noise.astype(np.float32)
        return torch.from_numpy(spec), int(self.label[i]), draw


class CallNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, (5, 5), stride=(2, 2), padding=2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(width * (BANDS // 4), 32, batch_first=True)
        self.head = nn.Linear(32, SPECIES)

    def forward(self, spec):
        h = self.conv(spec.unsqueeze(1))  # B, C, bands, frames
        h = h.permute(0, 3, 1, 2).flatten(2)  # B, frames, C * bands
        out, _ = self.rnn(h)
        return self.head(out.mean(1))


def worker_init(worker_id):
    seed_everything(SEED)


def worker_init_by_id(worker_id):
    seed_everything(torch.initial_seed() % 2**32)


def validate(model, loader):
    model.eval()
    good = n = 0
    with torch.no_grad():
        for spec, label, _ in loader:
            good += int((model(spec).argmax(1) == label).sum())
            n += len(label)
    model.train()
    return good / n


def train(args):
    seed_everything(SEED)
    init = worker_init
    if args.fixed:
        init = worker_init_by_id
    train_loader = DataLoader(
        CallDataset(640, 1, True),
        batch_size=16,
        shuffle=True,
        drop_last=True,
        num_workers=2,
        worker_init_fn=init,
    )
    valid_loader = DataLoader(CallDataset(200, 2, False), batch_size=100)
    model = CallNet()
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()

    draws = []
    step, epoch = 0, 0
    while step < args.steps:
        losses = []
        for spec, label, draw in train_loader:
            loss = criterion(model(spec), label)
            optim.zero_grad()
            loss.backward()
            optim.step()
            losses.append(loss.item())
            draws.append((epoch, draw))
            step += 1
            if step >= args.steps:
                break
        log.info(
            "epoch %d step %d loss %.4f valid acc %.3f",
            epoch,
            step,
            np.mean(losses),
            validate(model, valid_loader),
        )
        epoch += 1
    return draws


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    draws = train(args)
    if args.prove:
        values = torch.cat([d for _, d in draws])
        distinct = len(set(values.tolist()))
        log.info("# %d random shifts used, %d of them distinct", len(values), distinct)
        log.info("fault shows: %s", "yes" if distinct < 0.6 * len(values) else "no")


if __name__ == "__main__":
    main()
