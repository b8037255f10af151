"""Surrogate for a 1d advection-diffusion simulation, next-frame prediction.

A run is cut in two jobs of the queue: the second one resumes from the checkpoint of the first.
"""
import argparse
import math
import os
import tempfile
from typing import Optional

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class LinearWarmupCosine(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer, warmup, total, floor=0.01):
        def factor(i):
            if i < warmup:
                return (i + 1) / warmup
            frac = min(1.0, (i - warmup) / max(1, total - warmup))
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * frac))

        super().__init__(optimizer, factor)


class ConvSurrogate(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.inp = nn.Conv1d(1, width, 5, padding=2, padding_mode="circular")
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.GroupNorm(4, width),
                nn.GELU(),
                nn.Conv1d(width, width, 5, padding=2, padding_mode="circular"),
            )
            for _ in range(depth)
        )
        self.out = nn.Conv1d(width, 1, 1)

    def forward(self, u):
        h = self.inp(u)
        for b in self.blocks:
            h = h + b(h)
        return u + self.out(h)


def simulate(n, size=48, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.linspace(0, 2 * math.pi, size + 1)[:-1]
    k = torch.arange(1, 6).float()
    amp = torch.randn(n, 5, generator=g) / k
    phase = torch.rand(n, 5, generator=g) * 2 * math.pi
    now = (amp[..., None] * torch.sin(k[None, :, None] * x + phase[..., None])).sum(1)
    decay = torch.exp(-0.03 * k**2)
    later = (
        amp[..., None]
        * decay[None, :, None]
        * torch.sin(k[None, :, None] * (x - 0.35) + phase[..., None])
    ).sum(1)
    return now[:, None], later[:, None]


class Trainer:
    def __init__(self, folder, model, loader, val, total_steps, args):
        self.folder, self.model, self.loader, self.val, self.args = (
            folder,
            model,
            loader,
            val,
            args,
        )
        self.total_steps = total_steps
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=4e-3, weight_decay=1e-4
        )
        self.lr_scheduler: Optional[LinearWarmupCosine] = LinearWarmupCosine(
            self.optimizer, warmup=total_steps // 10 + 1, total=total_steps
        )
        self.starting_step = 0
        self.lr_used = []
        if os.path.exists(os.path.join(folder, "recent.pt")):
            self.load_checkpoint(os.path.join(folder, "recent.pt"))

    def save_model(self, step, name):
        state = {
            "step": step,
            "model": self.model.state_dict(),
            "optimizer_state_dict": self.optimizer.state_dict(),
        }
        if self.lr_scheduler is not None:
            state["lr_scheduler_state_dict"] = self.lr_scheduler.state_dict()
        torch.save(state, os.path.join(self.folder, name))

    def load_checkpoint(self, path):
        ckpt = torch.load(path)
        self.model.load_state_dict(ckpt["model"])
        self.optimizer.load_state_dict(ckpt["optimizer_state_dict"])
        if self.args.fixed:
            self.lr_scheduler.load_state_dict(ckpt["lr_scheduler_state_dict"])
        self.starting_step = ckpt["step"]
        print("resumed at step", self.starting_step)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        u, v = self.val
        return ((self.model(u) - v).pow(2).mean() / v.pow(2).mean()).sqrt().item()

    def train(self, until):
        step = self.starting_step
        while step < until:
            for u, v in self.loader:
                self.model.train()
                self.lr_used.append((step, self.optimizer.param_groups[0]["lr"]))
                loss = (self.model(u) - v).pow(2).mean() / v.pow(2).mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.lr_scheduler.step()
                step += 1
                if step % 20 == 0:
                    print(
                        f"step {step} vrmse {self.validate():.4f} loss {loss.item():.5f} "
                        f"lr {self.lr_scheduler.get_last_lr()[0]:.2e}"
                    )
                if step >= until:
                    break
        self.save_model(step, "recent.pt")


def job(folder, args, until):
    torch.manual_seed(100 + until)
    u, v = simulate(800)
    loader = DataLoader(TensorDataset(u, v), batch_size=32, shuffle=True)
    trainer = Trainer(
        folder, ConvSurrogate(), loader, simulate(128, seed=9), args.steps, args
    )
    trainer.train(until)
    return trainer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job(folder, args, args.steps // 2)
        second = job(folder, args, args.steps)
        print("final vrmse", round(second.validate(), 4))
    if args.prove:
        dummy = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=4e-3)
        plan = LinearWarmupCosine(dummy, args.steps // 10 + 1, args.steps).lr_lambdas[0]
        off = max(abs(lr - 4e-3 * plan(i)) for i, lr in second.lr_used)
        print(f"largest distance from the planned learning rate {off:.2e}")
        print("fault shows:", "yes" if off > 1e-6 else "no")


if __name__ == "__main__":
    main()
