"""Flute vocoder: mel-like frames -> waveform, adversarially (after the HiFi-GAN recipe).

For the first epochs the generator learns from the spectral loss alone; the multi-scale
discriminators and their optimizer join later.
"""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader, Dataset


class AttrDict(dict):
    __getattr__ = dict.__getitem__


h = AttrDict(
    hop=16,
    bands=20,
    n_fft=64,
    segment=512,
    sampling_rate=4000,
    batch_size=8,
    learning_rate=2e-3,
    adam_b1=0.8,
    adam_b2=0.99,
    lr_decay=0.97,
    lambda_mel=45,
    lambda_fm=2,
    seed=1234,
)


class Mel(nn.Module):
    """Log magnitudes in triangular bands."""

    def __init__(self):
        super().__init__()
        bins = h.n_fft // 2 + 1
        edges = torch.linspace(0, 1, h.bands + 2) ** 1.3 * (bins - 1)
        k = torch.arange(bins).float()
        up = (k - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        down = (edges[2:, None] - k) / (edges[2:] - edges[1:-1])[:, None]
        basis = torch.minimum(up, down).clamp(min=0)
        self.register_buffer("basis", basis, persistent=False)
        self.register_buffer("window", torch.hann_window(h.n_fft), persistent=False)

    def forward(self, y):
        pad = (h.n_fft - h.hop) // 2
        y = F.pad(y, (pad, pad), mode="reflect").squeeze(1)
        spec = torch.stft(
            y, h.n_fft, h.hop, window=self.window, center=False, return_complex=True
        )
        magnitude = torch.sqrt(spec.real**2 + spec.imag**2 + 1e-9)
        return torch.log(torch.clamp(self.basis @ magnitude, min=3e-2))


class FluteDataset(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(h.segment) / h.sampling_rate
        f0 = 200 + 500 * torch.rand(count, 1, generator=g)
        vibrato = 6 * torch.sin(
            2 * math.pi * (5 + torch.rand(count, 1, generator=g)) * t
        )
        phase = 2 * math.pi * torch.cumsum((f0 + vibrato) / h.sampling_rate, 1)
        y = sum(torch.sin(k * phase) / k**1.5 for k in (1, 2, 3))
        swell = torch.sin(math.pi * (t * 6 + torch.rand(count, 1, generator=g))).abs()
        y = y * (0.2 + 0.8 * swell) * 0.4
        self.audio = (y + 1e-3 * torch.randn(y.shape, generator=g)).unsqueeze(1)
        with torch.no_grad():
            self.mel = Mel()(self.audio)

    def __len__(self):
        return len(self.audio)

    def __getitem__(self, i):
        return self.mel[i], self.audio[i]


class ResBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv1 = weight_norm(
            nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        )
        self.conv2 = weight_norm(nn.Conv1d(channels, channels, 3, padding=1))

    def forward(self, x):
        y = self.conv1(F.leaky_relu(x, 0.1))
        return x + self.conv2(F.leaky_relu(y, 0.1))


class Generator(nn.Module):
    def __init__(self, channels=48):
        super().__init__()
        self.conv_pre = weight_norm(nn.Conv1d(h.bands, channels, 7, padding=3))
        self.ups, self.resblocks = nn.ModuleList(), nn.ModuleList()
        for i in range(2):
            c = channels // 2 ** (i + 1)
            self.ups.append(weight_norm(nn.ConvTranspose1d(2 * c, c, 8, 4, padding=2)))
            self.resblocks.append(nn.Sequential(ResBlock(c, 1), ResBlock(c, 3)))
        self.conv_post = weight_norm(nn.Conv1d(c, 1, 7, padding=3))

    def forward(self, x):
        x = self.conv_pre(x)
        for up, res in zip(self.ups, self.resblocks):
            x = res(up(F.leaky_relu(x, 0.1)))
        return torch.tanh(self.conv_post(F.leaky_relu(x)))

    def remove_weight_norm(self):
        for m in list(self.modules()):
            if parametrize.is_parametrized(m, "weight"):
                parametrize.remove_parametrizations(m, "weight")


class ScaleDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [
                weight_norm(nn.Conv1d(1, 16, 15, padding=7)),
                weight_norm(nn.Conv1d(16, 32, 21, 4, groups=4, padding=10)),
                weight_norm(nn.Conv1d(32, 32, 5, padding=2)),
            ]
        )
        self.post = weight_norm(nn.Conv1d(32, 1, 3, padding=1))

    def forward(self, x):
        fmap = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            fmap.append(x)
        x = self.post(x)
        return x.flatten(1), fmap + [x]


class MultiScaleDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.discriminators = nn.ModuleList(ScaleDiscriminator() for _ in range(3))
        self.pool = nn.AvgPool1d(4, 2, padding=2)

    def forward(self, y):
        scores, fmaps = [], []
        for i, d in enumerate(self.discriminators):
            y = self.pool(y) if i else y
            score, fmap = d(y)
            scores.append(score)
            fmaps.append(fmap)
        return scores, fmaps


def update_discriminators(msd, optim_d, y, y_g_hat):
    optim_d.zero_grad()
    real, _ = msd(y)
    fake, _ = msd(y_g_hat.detach())
    loss = sum(((1 - r) ** 2).mean() + (f**2).mean() for r, f in zip(real, fake))
    loss.backward()
    optim_d.step()
    return loss


def adversarial_loss(msd, y, y_g_hat):
    with torch.no_grad():
        _, fmap_r = msd(y)
    scores, fmap_g = msd(y_g_hat)
    loss_fm = sum(
        F.l1_loss(g, r) for fr, fg in zip(fmap_r, fmap_g) for r, g in zip(fr, fg)
    )
    return sum(((1 - s) ** 2).mean() for s in scores) + h.lambda_fm * loss_fm


def validate(generator, mel_fn, loader):
    generator.eval()
    with torch.no_grad():
        err = sum(F.l1_loss(mel_fn(generator(x)), x) for x, _ in loader)
    print(f"Validation Mel-Spec. Error : {err / len(loader):4.3f}")
    generator.train()


def export(generator, x):
    plain = Generator().eval()
    plain.load_state_dict(generator.state_dict())
    plain.remove_weight_norm()
    with torch.no_grad():
        return (plain(x) - generator.eval()(x)).abs().max()


def train(a):
    torch.manual_seed(h.seed)
    torch.set_num_threads(1)
    mel_fn, generator, msd = Mel(), Generator(), MultiScaleDiscriminator()
    betas = (h.adam_b1, h.adam_b2)
    optim_g = torch.optim.AdamW(generator.parameters(), h.learning_rate, betas=betas)
    optim_d = torch.optim.AdamW(msd.parameters(), h.learning_rate, betas=betas)
    scheduler_g = torch.optim.lr_scheduler.ExponentialLR(optim_g, h.lr_decay)
    scheduler_d = torch.optim.lr_scheduler.ExponentialLR(optim_d, h.lr_decay)
    train_loader = DataLoader(
        FluteDataset(96, 1), h.batch_size, shuffle=True, drop_last=True
    )
    validation_loader = DataLoader(FluteDataset(32, 2), batch_size=1)
    disc_start = a.steps // 4

    steps, epoch = 0, 0
    while steps < a.steps:
        for x, y in train_loader:
            y_g_hat = generator(x)
            adversarial = steps >= disc_start
            loss_disc = torch.zeros(())
            if adversarial:
                loss_disc = update_discriminators(msd, optim_d, y, y_g_hat)

            optim_g.zero_grad()
            loss_mel = F.l1_loss(mel_fn(y_g_hat), x)
            loss_gen_all = h.lambda_mel * loss_mel
            if adversarial:
                loss_gen_all = loss_gen_all + adversarial_loss(msd, y, y_g_hat)
            loss_gen_all.backward()
            optim_g.step()

            if steps % 12 == 0:
                print(
                    f"Steps : {steps:d}, Gen Loss Total : {loss_gen_all.item():4.3f}, "
                    f"Mel-Spec. Error : {loss_mel.item():4.3f}, "
                    f"Disc : {loss_disc.item():4.3f}"
                )
            if steps % 40 == 39:
                validate(generator, mel_fn, validation_loader)
            steps += 1
            if steps >= a.steps:
                break
        scheduler_g.step()
        if adversarial:
            scheduler_d.step()
        epoch += 1

    gap = export(generator, x)
    print(f"Exported without weight norm after {epoch} epochs, difference {gap:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    train(parser.parse_args())
