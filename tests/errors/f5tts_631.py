"""Flow-matching infilling of mel frames (tiny text-to-speech trainer, CPU, bf16 autocast)."""
from __future__ import annotations

import argparse
import math
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset

N_MEL = 20


class ToySpeech(Dataset):
    """each symbol owns a spectral envelope and lasts 4 frames"""

    def __init__(self, n=480, n_sym=12, length=8, seed=0):
        g = torch.Generator().manual_seed(seed)
        env = torch.randn(n_sym, N_MEL, generator=g)
        self.text = torch.randint(0, n_sym, (n, length), generator=g)
        mel = env[self.text].repeat_interleave(4, dim=1)
        self.mel = mel + 0.1 * torch.randn(mel.shape, generator=g)

    def __len__(self):
        return len(self.text)

    def __getitem__(self, i):
        return self.text[i], self.mel[i]


class DiTBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, 4, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.ada = nn.Linear(d, 2 * d)

    def forward(self, x, t):
        s, b = self.ada(t)[:, None].chunk(2, -1)
        h = self.n1(x) * (1 + s) + b
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff(self.n2(x))


class CFM(nn.Module):
    def __init__(self, d=48, depth=2, n_sym=12):
        super().__init__()
        self.text = nn.Embedding(n_sym, d)
        self.pos = nn.Parameter(torch.randn(32, d) * 0.02)
        self.inp = nn.Linear(2 * N_MEL, d)
        self.time = nn.Sequential(nn.Linear(16, d), nn.SiLU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(DiTBlock(d) for _ in range(depth))
        self.out = nn.Linear(d, N_MEL)

    def velocity(self, x, cond, text, t):
        freq = torch.exp(torch.arange(8) * -math.log(1000) / 8)
        ang = t[:, None] * 100 * freq
        temb = self.time(torch.cat([ang.sin(), ang.cos()], -1))
        h = (
            self.inp(torch.cat([x, cond], -1))
            + self.text(text).repeat_interleave(4, 1)
            + self.pos
        )
        for b in self.blocks:
            h = b(h, temb)
        return self.out(h)

    def forward(self, mel, text):
        b = mel.size(0)
        x0, t = torch.randn_like(mel), torch.rand(b)
        span = (torch.rand(b, mel.size(1), 1) < 0.7).float()
        phi = (1 - t)[:, None, None] * x0 + t[:, None, None] * mel
        pred = self.velocity(phi, mel * (1 - span), text, t)
        return (
            (F.mse_loss(pred.float(), mel - x0, reduction="none") * span).sum()
            / span.sum()
            / N_MEL
        )


class EMA:
    def __init__(self, model, beta=0.97):
        self.beta = beta
        self.ema_model = deepcopy(model).eval().requires_grad_(False)
        self.step = 0

    @torch.no_grad()
    def update(self, model):
        self.step += 1
        for e, p in zip(self.ema_model.parameters(), model.parameters()):
            e.lerp_(p, 1 - self.beta)


class Trainer:
    def __init__(self, model, dataset, args):
        self.model, self.args = model, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.ema_model = EMA(model)
        g = torch.Generator().manual_seed(5)
        self.loader = DataLoader(
            dataset, batch_size=16, shuffle=True, drop_last=True, generator=g
        )
        warm = 10
        self.scheduler = SequentialLR(
            self.optimizer,
            [
                LinearLR(self.optimizer, 0.1, 1.0, warm),
                LinearLR(self.optimizer, 1.0, 0.1, max(1, args.steps - warm)),
            ],
            milestones=[warm],
        )
        self.global_update = 0

    def batches(self):
        while True:
            yield from self.loader

    def train(self):
        accum = self.args.grad_accumulation_steps
        for micro, (text, mel) in enumerate(self.batches()):
            sync_gradients = (micro + 1) % accum == 0
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = self.model(mel, text)
            (loss / accum).backward()
            if sync_gradients:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
                self.global_update += 1

            if self.args.fixed:
                if sync_gradients:
                    self.ema_model.update(self.model)
            else:
                self.ema_model.update(self.model)

            if sync_gradients and self.global_update % 10 == 0:
                lr = self.scheduler.get_last_lr()[0]
                print(
                    f"update {self.global_update}: loss {loss.item():.4f} lr {lr:.2e}"
                )
            if self.global_update >= self.args.steps:
                break
        return self.ema_model.ema_model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=45)
    ap.add_argument("--grad_accumulation_steps", type=int, default=4)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(666)
    trainer = Trainer(CFM(), ToySpeech(), args)
    ema = trainer.train()

    held = ToySpeech(n=64, seed=0)
    torch.manual_seed(1)
    with torch.no_grad():
        print(f"ema eval loss {ema(held.mel, held.text).item():.4f}")
    if args.prove:
        per = trainer.ema_model.step / trainer.global_update
        print(f"ema updates per optimizer update: {per:.2f}")
        print("fault shows:", "yes" if per > 1.5 else "no")


if __name__ == "__main__":
    main()
