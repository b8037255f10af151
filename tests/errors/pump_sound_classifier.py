"""Classify pump sounds (normal, cavitation, bearing, imbalance) from log spectrograms.

Mixed precision: autocast(bfloat16) with a GradScaler so that the same script can be used with float16 on the GPU boxes.
"""
import argparse
import logging
import math

import torch
import torch.nn as nn
from torch.amp import GradScaler, autocast

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("pump")

SR = 4000
LENGTH = 4096
N_FFT = 256
HOP = 128
LABELS = ("normal", "cavitation", "bearing", "imbalance")


def synth(label, g):
    t = torch.arange(LENGTH) / SR
    f0 = 48 + 6 * torch.rand(1, generator=g).item()
    wav = 0.3 * torch.sin(2 * math.pi * f0 * t + 6 * torch.rand(1, generator=g).item())
    wav = wav + 0.15 * torch.sin(2 * math.pi * 2 * f0 * t)
    wav = wav + 0.25 * torch.randn(LENGTH, generator=g)
    if label == 1:
        burst = (
            (torch.rand(LENGTH // 64, generator=g) < 0.35).float().repeat_interleave(64)
        )
        wav = wav + 0.35 * burst * torch.randn(LENGTH, generator=g)
    elif label == 2:
        f = 900 + 400 * torch.rand(1, generator=g).item()
        wav = wav + 0.12 * torch.sin(2 * math.pi * f * t) * (
            1 + torch.sin(2 * math.pi * 11 * t)
        )
    elif label == 3:
        wav = wav * (1 + 0.6 * torch.sin(2 * math.pi * 7 * t))
    return wav


def features(wavs):
    window = torch.hann_window(N_FFT)
    spec = torch.stft(wavs, N_FFT, HOP, window=window, return_complex=True).abs()
    return torch.log1p(10 * spec).unsqueeze(1)


def build(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, len(LABELS), (n,), generator=g)
    x = features(torch.stack([synth(int(k), g) for k in y]))
    return x, y


class SoundNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.body = nn.Sequential(
            nn.Conv2d(1, 12, (7, 3), stride=(3, 1), padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d((2, 1)),
        )
        self.out = nn.Linear(64, len(LABELS))

    def forward(self, x):
        return self.out(self.body(self.norm(x)).flatten(1))


class AmpTrainer:
    def __init__(self, model, fixed, lr=2e-3, max_norm=1.0):
        self.model = model
        self.fixed = fixed
        self.max_norm = max_norm
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
        self.scaler = GradScaler("cpu", init_scale=2.0**14, growth_interval=1000)
        self.update_norms = []

    def step(self, x, y):
        self.model.train()
        self.opt.zero_grad(set_to_none=True)
        with autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(x)
            loss = nn.functional.cross_entropy(logits.float(), y)
        self.scaler.scale(loss).backward()
        if self.fixed:
            self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.scaler.step(self.opt)
        self.scaler.update()
        # after scaler.step the gradients are the ones that the optimizer has used
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in self.model.parameters()))
        self.update_norms.append(norm.item())
        return loss.item()

    @torch.no_grad()
    def accuracy(self, x, y):
        self.model.eval()
        with autocast("cpu", dtype=torch.bfloat16):
            pred = torch.cat([self.model(b).argmax(1) for b in x.split(100)])
        return (pred == y).float().mean().item()


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=160)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args(argv)
    torch.manual_seed(2024)

    xtr, ytr = build(640, 1)
    xte, yte = build(200, 2)
    log.info("train %s test %s", tuple(xtr.shape), tuple(xte.shape))
    trainer = AmpTrainer(SoundNet(), args.fixed)

    done, losses = 0, []
    while done < args.steps:
        for idx in torch.randperm(len(ytr)).split(args.batch):
            losses.append(trainer.step(xtr[idx], ytr[idx]))
            done += 1
            if done % 40 == 0:
                acc = trainer.accuracy(xte, yte)
                log.info(
                    "step %d loss %.4f test acc %.3f", done, sum(losses[-40:]) / 40, acc
                )
            if done == args.steps:
                break
    log.info("final test acc %.3f", trainer.accuracy(xte, yte))

    if args.prove:
        print(
            f"largest gradient norm used by the optimizer: {max(trainer.update_norms):.6f}"
        )
        print(
            "fault shows:",
            "yes" if max(trainer.update_norms) < 0.01 * trainer.max_norm else "no",
        )


if __name__ == "__main__":
    main()
