#!/usr/bin/env python
# Toy weather emulator: next state of a periodic 2-D field from the current one.
import argparse
import logging
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("emulator")


def simulate(n_traj, n_steps, size, seed):
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(n_traj, 3, size, size, generator=g)
    fx = torch.fft.fftfreq(size)[:, None]
    fy = torch.fft.fftfreq(size)[None, :]
    smooth = torch.exp(-60.0 * (fx**2 + fy**2))
    state = torch.fft.ifft2(torch.fft.fft2(noise) * smooth).real
    state = state / state.std()
    frames = [state]
    for _ in range(n_steps):
        t, u, v = state[:, 0], state[:, 1], state[:, 2]
        dx = (torch.roll(t, -1, 1) - torch.roll(t, 1, 1)) / 2
        dy = (torch.roll(t, -1, 2) - torch.roll(t, 1, 2)) / 2
        lap = sum(torch.roll(t, s, d) for s in (1, -1) for d in (1, 2)) - 4 * t
        t = t - 0.25 * (u * dx + v * dy) + 0.1 * lap
        u = torch.roll(u, 1, 1) + 0.02 * dx
        v = torch.roll(v, 1, 2) + 0.02 * dy
        state = torch.stack([t, u, v], 1)
        frames.append(state)
    return torch.stack(frames, 1)


class FieldDataset(torch.utils.data.Dataset):
    def __init__(self, frames):
        self.frames = frames
        self.per_traj = frames.shape[1] - 1

    def __len__(self):
        return self.frames.shape[0] * self.per_traj

    def __getitem__(self, i):
        a, b = divmod(i, self.per_traj)
        return self.frames[a, b], self.frames[a, b + 1]


class Block(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.norm = nn.GroupNorm(4, ch)
        self.c1 = nn.Conv2d(ch, ch, 3, padding=1, padding_mode="circular")
        self.c2 = nn.Conv2d(ch, ch, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return x + self.c2(F.gelu(self.c1(self.norm(x))))


class Emulator(nn.Module):
    def __init__(self, ch=16, depth=2):
        super().__init__()
        self.inp = nn.Conv2d(3, ch, 3, padding=1, padding_mode="circular")
        self.blocks = nn.Sequential(*[Block(ch) for _ in range(depth)])
        self.out = nn.Conv2d(ch, 3, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return x + self.out(self.blocks(self.inp(x)))


class Trainer:
    def __init__(self, conf):
        self.conf = conf
        self.model = Emulator()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=conf.lr, eps=1e-6, weight_decay=1e-4
        )
        self.scaler = torch.amp.GradScaler("cpu", enabled=conf.amp)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=conf.lr, total_steps=conf.steps + 1
        )
        self.records = []

    def raw_norm(self):
        s = self.scaler.get_scale()
        return (
            torch.stack([(p.grad / s).norm() for p in self.model.parameters()])
            .norm()
            .item()
        )

    def applied_norm(self, before):
        s = 1.0 if self.conf.fixed else before
        return (
            torch.stack([(p.grad / s).norm() for p in self.model.parameters()])
            .norm()
            .item()
        )

    def train_one_step(self, x, y):
        self.model.train()
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.conf.amp):
            pred = self.model(x)
        w = torch.tensor([1.0, 0.5, 0.5])[None, :, None, None]
        loss = (w * (pred.float() - y) ** 2).mean()
        self.scaler.scale(loss).backward()
        scale = self.scaler.get_scale()
        free = self.raw_norm() if self.conf.prove else None
        if self.conf.fixed:
            self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.conf.grad_max_norm)
        if self.conf.prove:
            self.records.append((free, self.applied_norm(scale)))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return loss.item()

    @torch.no_grad()
    def rollout_rmse(self, frames, lead):
        self.model.eval()
        x = frames[:, 0]
        for _ in range(lead):
            x = self.model(x)
        return (x - frames[:, lead]).pow(2).mean().sqrt().item()


def parse(argv):
    p = argparse.ArgumentParser(description="train a small field emulator")
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--size", type=int, default=16)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--grad-max-norm", type=float, default=1.0)
    p.add_argument("--no-amp", dest="amp", action="store_false")
    p.add_argument("--seed", type=int, default=1000)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    return p.parse_args(argv)


def main(argv=None):
    conf = parse(argv)
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    torch.manual_seed(conf.seed)
    train_frames = simulate(24, 12, conf.size, conf.seed + 1)
    valid_frames = simulate(8, 6, conf.size, conf.seed + 2)
    loader = torch.utils.data.DataLoader(
        FieldDataset(train_frames),
        batch_size=conf.batch_size,
        shuffle=True,
        drop_last=True,
    )
    trainer = Trainer(conf)

    step, running = 0, 0.0
    while step < conf.steps:
        for x, y in loader:
            running += trainer.train_one_step(x, y)
            step += 1
            if step % 20 == 0:
                log.info(
                    "step %4d  loss %.5f  lr %.2e  lead-1 rmse %.4f",
                    step,
                    running / 20,
                    trainer.schedule.get_last_lr()[0],
                    trainer.rollout_rmse(valid_frames, 1),
                )
                running = 0.0
            if step >= conf.steps:
                break
    for lead in (1, 3, 6):
        log.info("lead %d rmse %.4f", lead, trainer.rollout_rmse(valid_frames, lead))

    if conf.prove:
        ratios = [b / min(a, conf.grad_max_norm) for a, b in trainer.records]
        log.info(
            "gradient norm given to the optimizer / expected norm: min %.3g max %.3g",
            min(ratios),
            max(ratios),
        )
        bad = any(abs(r - 1.0) > 0.02 for r in ratios)
        log.info("fault shows: %s", "yes" if bad else "no")


if __name__ == "__main__":
    main()
