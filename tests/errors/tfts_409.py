"""Mini vocoder: mel-like frames -> waveform, adversarial after a warm start, continued from a checkpoint."""
import argparse
import io
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

HOP, FRAMES, BANDS = 8, 24, 12


class Tones:
    """Harmonic tones with vibrato; the conditioning is a log spectrum per frame."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(FRAMES * HOP).float()
        f0 = 0.02 + 0.06 * torch.rand(n, 1, generator=g)
        vib = 0.15 * torch.sin(
            2 * math.pi * t * (0.004 + 0.006 * torch.rand(n, 1, generator=g))
        )
        phase = torch.cumsum(2 * math.pi * f0 * (1 + vib), dim=1) + 6.28 * torch.rand(
            n, 1, generator=g
        )
        amp = torch.rand(n, 3, 1, generator=g)
        self.wav = sum(
            amp[:, k] * torch.sin((k + 1) * phase) / (k + 1) for k in range(3)
        )
        self.wav = self.wav / self.wav.abs().amax(1, keepdim=True)
        self.mel = spectrogram(self.wav, 32)[:, :BANDS, :FRAMES].clamp_min(1e-3).log()

    def batch(self, idx):
        return self.mel[idx], self.wav[idx]


def spectrogram(wav, size):
    return torch.stft(
        wav, size, HOP, window=torch.hann_window(size), return_complex=True
    ).abs()


def spectral_loss(a, b):
    total = 0.0
    for size in (32, 64):
        sa, sb = spectrogram(a, size), spectrogram(b, size)
        total = (
            total + F.l1_loss(sa, sb) + F.l1_loss((sa + 1e-2).log(), (sb + 1e-2).log())
        )
    return total


class Generator(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.pre = nn.Conv1d(BANDS, c, 5, padding=2)
        self.up1 = nn.ConvTranspose1d(c, c, 8, 4, padding=2)
        self.up2 = nn.ConvTranspose1d(c, c, 4, 2, padding=1)
        self.res = nn.ModuleList(
            [nn.Conv1d(c, c, 7, padding=3 * d, dilation=d) for d in (1, 3)]
        )
        self.post = nn.Conv1d(c, 1, 7, padding=3)

    def forward(self, mel):
        h = F.leaky_relu(self.pre(mel), 0.1)
        h = F.leaky_relu(self.up1(h), 0.1)
        h = F.leaky_relu(self.up2(h), 0.1)
        for r in self.res:
            h = h + r(F.leaky_relu(h, 0.1))
        return torch.tanh(self.post(h)).squeeze(1)


class Discriminator(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, c, 9, 2, padding=4),
            nn.LeakyReLU(0.2),
            nn.Conv1d(c, 2 * c, 9, 2, padding=4),
            nn.LeakyReLU(0.2),
            nn.Conv1d(2 * c, 1, 5, padding=2),
        )

    def forward(self, wav):
        return self.net(wav[:, None])


class PiecewiseDecay:
    """Learning rate as a step function of the number of updates this optimizer has made."""

    def __init__(self, optimizer, boundaries, values):
        self.optimizer, self.boundaries, self.values = optimizer, boundaries, values
        self.iterations = 0

    def rate(self, n):
        return self.values[sum(n >= b for b in self.boundaries)]

    def apply(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.iterations)
        self.optimizer.step()
        self.iterations += 1


class GanTrainer:
    def __init__(self, args):
        self.args, self.steps = args, 0
        self.gen, self.disc = Generator(), Discriminator()
        self.g_opt = torch.optim.AdamW(
            self.gen.parameters(), lr=1e-3, betas=(0.8, 0.99)
        )
        self.d_opt = torch.optim.AdamW(
            self.disc.parameters(), lr=1e-3, betas=(0.8, 0.99)
        )
        self.g_lr = PiecewiseDecay(self.g_opt, [140, 200], [2e-3, 1e-3, 5e-4])
        self.d_lr = PiecewiseDecay(self.d_opt, [90, 130], [1e-3, 2.5e-4, 6e-5])
        self.d_rates = []

    def save(self, f):
        torch.save(
            {
                "steps": self.steps,
                "gen": self.gen.state_dict(),
                "disc": self.disc.state_dict(),
                "g_opt": self.g_opt.state_dict(),
                "d_opt": self.d_opt.state_dict(),
            },
            f,
        )

    def load(self, f):
        ck = torch.load(f)
        self.steps = ck["steps"]
        self.gen.load_state_dict(ck["gen"])
        self.disc.load_state_dict(ck["disc"])
        self.g_opt.load_state_dict(ck["g_opt"])
        self.d_opt.load_state_dict(ck["d_opt"])
        self.g_lr.iterations = self.steps
        offset = self.args.disc_start if self.args.fixed else 0
        self.d_lr.iterations = max(0, self.steps - offset)

    def train_step(self, mel, wav):
        fake = self.gen(mel)
        spec = spectral_loss(fake, wav)
        adv = torch.zeros(())
        adversarial = self.steps >= self.args.disc_start
        if adversarial:
            adv = (self.disc(fake) - 1).pow(2).mean()
        self.g_opt.zero_grad()
        (spec + 0.5 * adv).backward()
        self.g_lr.apply()
        d_loss = torch.zeros(())
        if adversarial:
            d_loss = (self.disc(wav) - 1).pow(2).mean() + self.disc(fake.detach()).pow(
                2
            ).mean()
            self.d_opt.zero_grad()
            d_loss.backward()
            self.d_lr.apply()
            self.d_rates.append((self.steps, self.d_opt.param_groups[0]["lr"]))
        if self.steps % 30 == 0:
            print(
                f"step {self.steps:4d}  spec {spec.item():.4f}  adv {adv.item():.4f}  disc {d_loss.item():.4f}"
            )
        self.steps += 1

    def run(self, data, until, pick):
        while self.steps < until:
            idx = torch.randint(0, len(data.wav), (self.args.batch,), generator=pick)
            self.train_step(*data.batch(idx))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=240)
    ap.add_argument("--resume-at", type=int, default=120)
    ap.add_argument("--disc-start", type=int, default=60)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--seed", type=int, default=17)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    data, held = Tones(256, args.seed), Tones(48, args.seed + 1)
    pick = torch.Generator().manual_seed(args.seed)

    first = GanTrainer(args)
    first.run(data, min(args.resume_at, args.steps), pick)
    file = io.BytesIO()
    first.save(file)
    file.seek(0)
    print(f"checkpoint written at step {first.steps}, continuing from it")

    second = GanTrainer(args)
    second.load(file)
    second.run(data, args.steps, pick)

    with torch.no_grad():
        fake = second.gen(held.mel)
        real_score, fake_score = (
            second.disc(held.wav).mean().item(),
            second.disc(fake).mean().item(),
        )
    print(
        f"held-out spectral distance {spectral_loss(fake, held.wav).item():.4f}, "
        f"discriminator on real {real_score:.3f} on generated {fake_score:.3f}"
    )

    if args.prove:
        rates = first.d_rates + second.d_rates
        planned = [first.d_lr.rate(n) for n in range(len(rates))]
        off = [s for (s, r), p in zip(rates, planned) if abs(r - p) > 1e-12]
        print(
            f"discriminator updates away from the planned rate: {len(off)} of {len(rates)}"
            + (f", first in step {off[0]}" if off else "")
        )
        print(f"summed rate {sum(r for _, r in rates):.4f}, planned {sum(planned):.4f}")
        print("fault shows: " + ("yes" if off else "no"))


if __name__ == "__main__":
    main()
