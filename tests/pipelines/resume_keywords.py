"""Keyword spotting on synthetic sounds that is interrupted half-way: model,
optimizer, scheduler and random states go to a file, everything is built anew, the
states are loaded and the training goes on to its end.

    python resume_keywords.py --steps 96
"""

import argparse
import os
import random
import tempfile

import torch
import torch.nn as nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

WORDS = 6
RATE = 256


def sounds(count, seed):
    """A word is three tones, one after the other, at a random moment."""
    g = torch.Generator().manual_seed(31)
    tones = 10 + 60 * torch.rand(WORDS, 3, generator=g)
    g.manual_seed(seed)
    label = torch.randint(0, WORDS, (count,), generator=g)
    t = torch.arange(RATE) / RATE
    start = 0.3 * torch.rand(count, 1, generator=g)
    wave = 0.4 * torch.randn(count, RATE, generator=g)
    for i in range(3):
        begin = start + 0.2 * i
        window = ((t >= begin) & (t < begin + 0.2)).float()
        wave += window * torch.sin(6.2832 * tones[label, i : i + 1] * (t - begin))
    return TensorDataset(wave, label)


class Spotter(nn.Module):
    """Log-spectrogram, two depthwise-separable convolutions over time, a pooling."""

    def __init__(self, channels=48):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.norm = nn.BatchNorm1d(33)
        self.pointwise1 = nn.Conv1d(33, channels, 1)
        self.depthwise = nn.Conv1d(channels, channels, 5, padding=2, groups=channels)
        self.pointwise2 = nn.Conv1d(channels, channels, 1)
        self.drop = nn.Dropout(0.1)
        self.classify = nn.Linear(channels, WORDS)

    def forward(self, wave):
        spectrum = torch.stft(wave, 64, 16, window=self.window, return_complex=True)
        x = self.norm(torch.log1p(spectrum.abs()))
        x = torch.relu(self.pointwise1(x))
        x = torch.relu(self.pointwise2(self.depthwise(x)))
        return self.classify(self.drop(x.amax(dim=-1)))


class Run:
    def __init__(self, args):
        self.loader = DataLoader(sounds(args.epoch_steps * 32, 1), 32, shuffle=True)
        self.test_loader = DataLoader(sounds(256, 2), 64)
        self.model = Spotter()
        self.optimizer = torch.optim.NAdam(self.model.parameters(), lr=1e-3)
        self.scheduler = OneCycleLR(self.optimizer, 6e-3, total_steps=args.steps)
        self.step = 0

    def save(self, path):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "step": self.step,
            "rng": torch.get_rng_state(),
            "python_rng": random.getstate(),
        }
        torch.save(state, path)

    def load(self, path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]
        torch.set_rng_state(state["rng"])
        random.setstate(state["python_rng"])

    def epoch(self, limit):
        self.model.train()
        for wave, label in self.loader:
            if self.step >= limit:
                return
            gain = random.uniform(0.7, 1.3)
            loss = nn.functional.cross_entropy(self.model(gain * wave), label)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.step += 1
            if self.step % 6 == 0:
                print(f"step {self.step} loss {loss.item():.6f}", flush=True)

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            right = sum(
                (self.model(x).argmax(1) == y).sum() for x, y in self.test_loader
            )
        print(f"test accuracy {right.item() / len(self.test_loader.dataset):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--epoch-steps", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(2024)
    random.seed(2024)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "last.pt")
        run = Run(args)
        while run.step < args.steps // 2:
            run.epoch(limit=args.steps)
        run.save(path)
        del run

        resumed = Run(args)
        resumed.load(path)
        print(f"resumed at step {resumed.step}")
    resumed.evaluate()
    while resumed.step < args.steps:
        resumed.epoch(limit=args.steps)
    resumed.evaluate()


if __name__ == "__main__":
    main()
