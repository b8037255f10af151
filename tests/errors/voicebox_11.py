"""Flow matching for speech infilling: given the surrounding frames, fill in the missing stretch of a
(toy) mel spectrogram. Conditional flow matching wrapper around a small conv/attention net."""
import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


def exists(v):
    return v is not None


def mask_from_frac_lengths(seq_len, frac, gen):
    """one contiguous stretch per row, True = to be filled in"""
    lengths = (frac * seq_len).long()
    start = (torch.rand(frac.shape, generator=gen) * (seq_len - lengths)).long()
    pos = torch.arange(seq_len)
    return (pos >= start[:, None]) & (pos < (start + lengths)[:, None])


class ToySpeech:
    """mel frames with slowly moving formants and a phoneme id per frame"""

    def __init__(self, mels=20, frames=64, phonemes=10, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.mels, self.frames, self.phonemes = mels, frames, phonemes
        self.centres = 2 + (mels - 4) * torch.rand(phonemes, 2, generator=self.gen)

    def batch(self, n):
        g = self.gen
        change = torch.rand(n, self.frames, generator=g) < 0.12
        draws = torch.randint(0, self.phonemes, (n, self.frames), generator=g)
        phon = draws.clone()
        for t in range(1, self.frames):
            phon[:, t] = torch.where(change[:, t], draws[:, t], phon[:, t - 1])
        pitch = torch.cumsum(0.3 * torch.randn(n, self.frames, generator=g), 1)
        speaker = torch.randn(n, 1, 1, generator=g)
        bins = torch.arange(self.mels)
        c = self.centres[phon] + 0.5 * pitch[..., None]
        energy = torch.exp(-((bins - c[..., :1]) ** 2) / 6) + torch.exp(
            -((bins - c[..., 1:]) ** 2) / 6
        )
        mel = 2 * energy - 0.6 + 0.4 * speaker * torch.cos(bins / 4.0)
        return mel + 0.25 * torch.randn(mel.shape, generator=g), phon


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, t):
        f = torch.exp(
            torch.arange(self.dim // 2) * -(math.log(1000.0) / (self.dim // 2))
        )
        a = t[:, None] * 100 * f
        return torch.cat([a.sin(), a.cos()], -1)


class VoiceBox(nn.Module):
    def __init__(self, mels, phonemes, dim=64, depth=3):
        super().__init__()
        self.phon = nn.Embedding(phonemes, 16)
        self.to_embed = nn.Linear(mels * 2 + 16, dim)
        self.time = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, dim), nn.SiLU())
        self.convs = nn.ModuleList(
            nn.Conv1d(dim, dim, 7, padding=3, groups=4) for _ in range(depth)
        )
        self.mixes = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.to_pred = nn.Linear(dim, mels)

    def forward(self, x, times, cond, phon):
        h = self.to_embed(torch.cat([x, cond, self.phon(phon)], -1))
        h = h + self.time(times)[:, None]
        for conv, mix, norm in zip(self.convs, self.mixes, self.norms):
            y = conv(norm(h).transpose(1, 2)).transpose(1, 2)
            h = h + mix(F.gelu(y))
        return self.to_pred(h)


class ConditionalFlowMatcherWrapper(nn.Module):
    def __init__(self, voicebox, sigma=1e-5, fixed=False, gen=None):
        super().__init__()
        self.voicebox, self.sigma, self.fixed, self.gen = voicebox, sigma, fixed, gen
        self.last_cond = self.last_mask = None

    def forward(self, x1, phon, mask=None):
        b, n, _ = x1.shape
        if not exists(mask):
            frac = 0.5 + 0.4 * torch.rand(b, generator=self.gen)
            mask = mask_from_frac_lengths(n, frac, self.gen)
        x0 = torch.randn(x1.shape, generator=self.gen)
        times = torch.rand(b, generator=self.gen)
        t = times[:, None, None]
        w = (1 - (1 - self.sigma) * t) * x0 + t * x1
        flow = x1 - (1 - self.sigma) * x0
        cond = x1
        if self.fixed:
            cond = cond.masked_fill(mask[..., None], 0.0)
        self.last_cond, self.last_mask = cond, mask
        pred = self.voicebox(w, times, cond, phon)
        # only the part to be filled in counts
        loss = F.mse_loss(pred, flow, reduction="none").mean(-1)
        loss = loss.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)
        return loss.mean()

    @torch.no_grad()
    def infill(self, x1, phon, mask, steps=8):
        """at inference the stretch is not known"""
        cond = x1.masked_fill(mask[..., None], 0.0)
        x = torch.randn(x1.shape, generator=self.gen)
        for i in range(steps):
            times = torch.full((len(x),), i / steps)
            x = x + self.voicebox(x, times, cond, phon) / steps
        return torch.where(mask[..., None], x, x1)


class EMA:
    def __init__(self, model, beta=0.97):
        self.model, self.beta = copy.deepcopy(model), beta

    @torch.no_grad()
    def update(self, online):
        for e, p in zip(self.model.parameters(), online.parameters()):
            e.lerp_(p, 1 - self.beta)


class VoiceBoxTrainer:
    def __init__(self, cfm, data, lr, batch_size, steps):
        self.cfm, self.data, self.batch_size, self.steps = cfm, data, batch_size, steps
        self.optim = torch.optim.AdamW(
            cfm.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=1e-3
        )
        warm = max(1, steps // 10)
        self.sched = torch.optim.lr_scheduler.SequentialLR(
            self.optim,
            [
                torch.optim.lr_scheduler.LinearLR(self.optim, 0.1, total_iters=warm),
                torch.optim.lr_scheduler.CosineAnnealingLR(
                    self.optim, max(1, steps - warm)
                ),
            ],
            [warm],
        )
        self.ema = EMA(cfm.voicebox)

    def train(self):
        for step in range(self.steps):
            loss = self.cfm(*self.data.batch(self.batch_size))
            self.optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.cfm.parameters(), 0.5)
            self.optim.step()
            self.sched.step()
            self.ema.update(self.cfm.voicebox)
            if step % 25 == 0 or step == self.steps - 1:
                print(f"{step}: loss: {loss.item():0.3f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(8)
    data = ToySpeech(seed=3)
    cfm = ConditionalFlowMatcherWrapper(
        VoiceBox(data.mels, data.phonemes), fixed=args.fixed, gen=gen
    )
    trainer = VoiceBoxTrainer(cfm, data, lr=3e-3, batch_size=16, steps=args.steps)
    trainer.train()
    cfm.voicebox = trainer.ema.model
    mel, phon = data.batch(32)
    mask = mask_from_frac_lengths(data.frames, torch.full((32,), 0.6), gen)
    err = (cfm.infill(mel, phon, mask) - mel)[mask].pow(2).mean().item()
    print(f"infill error {err:.4f}")
    if args.prove:
        seen = cfm.last_cond[cfm.last_mask].abs().max().item()
        print(
            f"largest value of the condition inside the stretch to be filled in: {seen:.4f}"
        )
        print("fault shows:", "yes" if seen > 0 else "no")


if __name__ == "__main__":
    main()
