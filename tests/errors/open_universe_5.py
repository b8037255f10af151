"""Speech enhancement GAN on synthetic voiced sounds: multi-resolution (MRD) and multi-period (MPD) critics."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SR, LEN = 4000, 1024


def voice(n, gen):
    t = torch.arange(LEN) / SR
    f0 = torch.rand(n, 1, generator=gen) * 150 + 100
    out = torch.zeros(n, LEN)
    for k in range(1, 5):
        a = torch.rand(n, 1, generator=gen) / k
        ph = torch.rand(n, 1, generator=gen) * 2 * math.pi
        out += a * torch.sin(2 * math.pi * k * f0 * t + ph)
    env = torch.sin(math.pi * (t * SR / LEN)) ** 0.5
    clean = out * env * 0.5
    noisy = clean + 0.25 * torch.randn(n, LEN, generator=gen)
    return clean[:, None], noisy[:, None]


class Enhancer(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.inp = nn.Conv1d(1, c, 9, padding=4)
        self.res = nn.ModuleList(
            nn.Sequential(
                nn.PReLU(),
                nn.Conv1d(c, c, 5, padding=2 * d, dilation=d),
                nn.PReLU(),
                nn.Conv1d(c, c, 1),
            )
            for d in (1, 3, 9, 27)
        )
        self.out = nn.Conv1d(c, 1, 9, padding=4)

    def forward(self, x):
        h = self.inp(x)
        for r in self.res:
            h = h + r(h)
        return x + self.out(h)


class PeriodCritic(nn.Module):
    def __init__(self, period, c=8):
        super().__init__()
        self.period = period
        self.net = nn.Sequential(
            nn.Conv2d(1, c, (5, 1), (3, 1), (2, 0)),
            nn.LeakyReLU(0.1),
            nn.Conv2d(c, 2 * c, (5, 1), (3, 1), (2, 0)),
            nn.LeakyReLU(0.1),
            nn.Conv2d(2 * c, 1, (3, 1), 1, (1, 0)),
        )

    def forward(self, x):
        pad = -x.size(-1) % self.period
        x = F.pad(x, (0, pad), "reflect")
        return self.net(x.view(x.size(0), 1, -1, self.period))


class ResolutionCritic(nn.Module):
    def __init__(self, n_fft, c=8):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("win", torch.hann_window(n_fft))
        self.net = nn.Sequential(
            nn.Conv2d(1, c, 3, 1, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(c, 2 * c, 3, 2, 1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(2 * c, 1, 3, 1, 1),
        )

    def forward(self, x):
        s = torch.stft(
            x[:, 0], self.n_fft, self.n_fft // 4, window=self.win, return_complex=True
        ).abs()
        return self.net(s[:, None].clamp_min(1e-5).log())


class CriticLoss(nn.Module):
    """least squares GAN terms over a set of critics"""

    def __init__(self, critics):
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def disc(self, real, fake):
        return sum(
            ((1 - c(real)) ** 2).mean() + (c(fake) ** 2).mean() for c in self.critics
        ) / len(self.critics)

    def gen(self, fake):
        return sum(((1 - c(fake)) ** 2).mean() for c in self.critics) / len(
            self.critics
        )


class UniverseGAN(nn.Module):
    def __init__(self, opts):
        super().__init__()
        self.opts = opts
        self.model = Enhancer()
        self.loss_mrd = CriticLoss([ResolutionCritic(n) for n in (64, 128)])
        self.loss_mpd = CriticLoss([PeriodCritic(p) for p in (2, 3, 5)])

    def configure_optimizers(self):
        params_disc = list(self.loss_mrd.parameters()) + list(
            self.loss_mrd.parameters()
        )
        if self.opts.fixed:
            params_disc = list(self.loss_mrd.parameters()) + list(
                self.loss_mpd.parameters()
            )
        opt_gen = torch.optim.AdamW(self.model.parameters(), lr=2e-3, betas=(0.8, 0.99))
        opt_disc = torch.optim.AdamW(
            params_disc, lr=1e-3, betas=(0.8, 0.99), weight_decay=0.0
        )
        return opt_gen, opt_disc

    def spectral(self, a, b):
        w = torch.hann_window(128)
        sa, sb = (
            torch.stft(v[:, 0], 128, 32, window=w, return_complex=True).abs()
            for v in (a, b)
        )
        return F.l1_loss(sa, sb) / sb.mean()

    def generator_loss(self, clean, enhanced):
        adv = self.loss_mrd.gen(enhanced) + self.loss_mpd.gen(enhanced)
        return (
            0.1 * adv + F.l1_loss(enhanced, clean) * 2 + self.spectral(enhanced, clean)
        )

    def discriminator_loss(self, clean, enhanced):
        d_mrd = self.loss_mrd.disc(clean, enhanced)
        d_mpd = self.loss_mpd.disc(clean, enhanced)
        return d_mrd + d_mpd, d_mrd.item(), d_mpd.item()


def si_sdr(est, ref):
    alpha = (est * ref).sum(-1, keepdim=True) / ref.pow(2).sum(-1, keepdim=True)
    return (
        (
            10
            * torch.log10(
                (alpha * ref).pow(2).sum(-1) / (est - alpha * ref).pow(2).sum(-1)
            )
        )
        .mean()
        .item()
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps",
        type=int,
        default=42,
        help="generator steps (as many for the critics)",
    )
    ap.add_argument("--batch", type=int, default=6)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    opts = ap.parse_args()
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(80)
    gan = UniverseGAN(opts)
    opt_gen, opt_disc = gan.configure_optimizers()
    start = {n: p.detach().clone() for n, p in gan.named_parameters()}

    for step in range(opts.steps):
        clean, noisy = voice(opts.batch, gen)
        enhanced = gan.model(noisy)

        opt_disc.zero_grad()
        loss_d, mrd, mpd = gan.discriminator_loss(clean, enhanced.detach())
        loss_d.backward()
        nn.utils.clip_grad_norm_(
            list(gan.loss_mrd.parameters()) + list(gan.loss_mpd.parameters()), 10.0
        )
        opt_disc.step()

        opt_gen.zero_grad()
        loss_g = gan.generator_loss(clean, enhanced)
        loss_g.backward()
        opt_gen.step()
        gan.zero_grad()
        if step % 10 == 0 or step == opts.steps - 1:
            print(f"{step:3d}  gen {loss_g.item():.4f}  mrd {mrd:.4f}  mpd {mpd:.4f}")

    with torch.no_grad():
        clean, noisy = voice(32, gen)
        print(
            f"SI-SDR noisy {si_sdr(noisy, clean):.2f} dB, enhanced {si_sdr(gan.model(noisy), clean):.2f} dB"
        )

    if opts.prove:
        moved = {
            k: sum(
                (p - start[n]).abs().sum().item()
                for n, p in gan.named_parameters()
                if n.startswith(k)
            )
            for k in ("model", "loss_mrd", "loss_mpd")
        }
        print(
            "total movement of the weights:", {k: round(v, 3) for k, v in moved.items()}
        )
        print("fault shows:", "yes" if moved["loss_mpd"] == 0 else "no")


if __name__ == "__main__":
    main()
