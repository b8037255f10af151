"""Keyword spotting on one-second clips, 1-D convolutions on the raw wave.

The job runs in two slots on the shared machine: the first slot writes a checkpoint at half
of the steps, the second slot picks it up and goes on.
"""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS = ["yes", "no", "stop", "go", "left", "right"]
RATE = 2000


def synth_clips(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(RATE) / RATE
    clips, labels = [], []
    for _ in range(n):
        k = rng.integers(len(WORDS))
        f0 = 90 + 45 * k + rng.normal(0, 12)
        glide = [0.0, 60.0, -60.0][k % 3] + rng.normal(0, 10)
        start, length = rng.uniform(0.1, 0.4), rng.uniform(0.3, 0.5)
        envelope = np.exp(-(((t - start - length / 2) / (length / 3)) ** 2))
        phase = 2 * np.pi * (f0 * t + 0.5 * glide * t**2)
        voice = np.sin(phase) + 0.5 * np.sin(2 * phase) + 0.25 * np.sin(3 * phase + 1)
        clip = voice * envelope * rng.uniform(0.5, 1.2) + rng.normal(0, 0.5, RATE)
        clips.append(clip / np.abs(clip).max())
        labels.append(k)
    return torch.tensor(np.array(clips), dtype=torch.float32)[:, None], torch.tensor(
        labels
    )


class SpotNet(nn.Module):
    def __init__(self, width=24, dropout=0.2):
        super().__init__()

        def block(i, o, k, s):
            return [
                nn.Conv1d(i, o, k, stride=s, padding=k // 2),
                nn.BatchNorm1d(o),
                nn.ReLU(),
            ]

        self.conv = nn.Sequential(
            *block(1, width, 41, 8),
            *block(width, width, 9, 2),
            *block(width, 2 * width, 9, 2),
            *block(2 * width, 2 * width, 5, 2),
        )
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(2 * width, len(WORDS))

    def forward(self, wave):
        return self.fc(self.drop(self.conv(wave).amax(-1)))


class Job:
    def __init__(self, args, folder):
        self.args = args
        self.path = os.path.join(folder, "last.pt")
        torch.manual_seed(args.seed)
        self.model = SpotNet()
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=args.lr, betas=(0.9, 0.999), amsgrad=True
        )
        self.scheduler = torch.optim.lr_scheduler.LinearLR(
            self.optimizer, 1.0, 0.2, total_iters=max(1, args.steps)
        )
        self.criterion = nn.CrossEntropyLoss()
        self.generator = torch.Generator().manual_seed(args.seed)
        x, y = synth_clips(720, args.seed)
        self.train_loader = DataLoader(
            TensorDataset(x, y),
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
            generator=self.generator,
        )
        self.x_val, self.y_val = synth_clips(240, args.seed + 1)
        self.step = 0

    def save(self):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "generator": self.generator.get_state(),
                "step": self.step,
            },
            self.path,
        )
        print(f"saved {os.path.basename(self.path)} at step {self.step}")

    def resume(self):
        ckpt = torch.load(self.path, map_location="cpu")
        self.model.load_state_dict(ckpt["model"])
        if self.args.fixed:
            self.optimizer.load_state_dict(ckpt["optimizer"])
        self.scheduler.load_state_dict(ckpt["scheduler"])
        for group, lr in zip(self.optimizer.param_groups, self.scheduler.get_last_lr()):
            group["lr"] = lr
        self.generator.set_state(ckpt["generator"])
        self.step = ckpt["step"]
        print(f"resumed at step {self.step}, lr {self.scheduler.get_last_lr()[0]:.2e}")

    def validate(self):
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.x_val)
        self.model.train()
        return (
            self.criterion(logits, self.y_val).item(),
            (logits.argmax(1) == self.y_val).float().mean().item(),
        )

    def run(self, until):
        self.model.train()
        recent = []
        while self.step < until:
            for wave, word in self.train_loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(wave), word)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.step += 1
                recent.append(loss.item())
                if self.step % 20 == 0:
                    val, acc = self.validate()
                    print(
                        f"step {self.step:4d} loss {np.mean(recent):.4f} val {val:.4f} acc {acc:.3f}"
                    )
                    recent = []
                if self.step >= until:
                    return


def optimizer_age(job):
    ages = [float(s["step"]) for s in job.optimizer.state.values() if "step" in s]
    return max(ages) if ages else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        first = Job(args, folder)
        first.run(args.steps // 2)
        first.save()

        second = Job(args, folder)
        second.resume()
        age = optimizer_age(second)
        second.run(args.steps)
        val, acc = second.validate()
        print(f"final val loss {val:.4f} accuracy {acc:.3f}")
        if args.prove:
            print(f"optimizer has seen {age:.0f} updates at step {first.step}")
            print("fault shows:", "yes" if age < first.step else "no")
