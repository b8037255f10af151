"""Patch autoencoder with an adversarial loss (image tokenizer), manual optimisation with accumulation."""
import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--grad_accumulates", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=12)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--lr_disc", type=float, default=5e-4)
parser.add_argument("--disc_start", type=int, default=10)
parser.add_argument("--image_gan_weight", type=float, default=0.3)
parser.add_argument("--gan_feat_weight", type=float, default=1.0)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--prove", action="store_true")


class VectorQuantizer(nn.Module):
    def __init__(self, n=64, d=8, beta=0.25):
        super().__init__()
        self.book = nn.Embedding(n, d)
        nn.init.uniform_(self.book.weight, -0.5, 0.5)
        self.beta = beta

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.size(1))
        idx = torch.cdist(flat, self.book.weight).argmin(1)
        q = self.book(idx).view(z.size(0), z.size(2), z.size(3), -1).permute(0, 3, 1, 2)
        commit = F.mse_loss(q, z.detach()) + self.beta * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), commit, idx


class Tokenizer(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, w, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(w, w, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(w, 8, 1),
        )
        self.quant = VectorQuantizer()
        self.decoder = nn.Sequential(
            nn.Conv2d(8, w, 3, 1, 1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(w, w, 3, 1, 1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(w, 3, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, x):
        z, commit, idx = self.quant(self.encoder(x))
        return self.decoder(z), commit, idx


class PatchDiscriminator(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(3, w, 4, 2, 1), nn.LeakyReLU(0.2)),
                nn.Sequential(
                    nn.Conv2d(w, 2 * w, 4, 2, 1),
                    nn.InstanceNorm2d(2 * w),
                    nn.LeakyReLU(0.2),
                ),
                nn.Conv2d(2 * w, 1, 3, 1, 1),
            ]
        )

    def forward(self, x):
        feats = []
        for layer in self.layers:
            x = layer(x)
            feats.append(x)
        return x, feats[:-1]


def stripes(n, gen, size=24):
    """coloured gratings with a random direction, frequency and offset"""
    t = torch.linspace(-1, 1, size)
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    a = torch.rand(n, 1, 1, generator=gen) * 3.1416
    f = torch.rand(n, 1, 1, generator=gen) * 5 + 3
    p = torch.rand(n, 1, 1, generator=gen) * 6.28
    wave = torch.sin(f * (a.cos() * xx + a.sin() * yy) + p)
    colour = torch.rand(n, 3, 1, 1, generator=gen) * 1.4 - 0.7
    return (wave[:, None] * colour).clamp(-1, 1)


class VQGAN:
    def __init__(self, hparams):
        self.hp = hparams
        self.tokenizer, self.disc = Tokenizer(), PatchDiscriminator()
        self.opt_ae = torch.optim.Adam(
            self.tokenizer.parameters(), lr=hparams.lr, betas=(0.5, 0.9)
        )
        self.opt_disc = torch.optim.Adam(
            self.disc.parameters(), lr=hparams.lr_disc, betas=(0.5, 0.9)
        )
        self.disc_ref, self.gaps = None, []

    def ae_loss(self, x, step):
        rec, commit, _ = self.tokenizer(x)
        loss = F.l1_loss(rec, x) * 4 + commit
        logits_fake, feat_fake = self.disc(rec)
        with torch.no_grad():
            _, feat_real = self.disc(x)
        w = 1.0 if step >= self.hp.disc_start else 0.0
        g_loss = -logits_fake.mean()
        feat = sum(F.l1_loss(a, b) for a, b in zip(feat_fake, feat_real))
        return (
            loss
            + w * (self.hp.image_gan_weight * g_loss + self.hp.gan_feat_weight * feat),
            rec.detach(),
        )

    def disc_loss(self, x, rec, step):
        real, fake = self.disc(x)[0], self.disc(rec)[0]
        w = 1.0 if step >= self.hp.disc_start else 0.0
        return w * 0.5 * (F.relu(1 - real).mean() + F.relu(1 + fake).mean())

    def training_step(self, x, batch_idx):
        hp = self.hp
        step = batch_idx // hp.grad_accumulates
        if hp.fixed:
            self.disc.requires_grad_(False)
        loss_ae, rec = self.ae_loss(x, step)
        (loss_ae / hp.grad_accumulates).backward()

        self.disc.requires_grad_(True)
        loss_d = self.disc_loss(x, rec, step)
        if hp.prove:
            self.remember(loss_d / hp.grad_accumulates)
        (loss_d / hp.grad_accumulates).backward()

        if (batch_idx + 1) % hp.grad_accumulates == 0:
            if hp.prove and step >= hp.disc_start:
                self.compare()
            self.disc_ref = None
            for opt, net in ((self.opt_ae, self.tokenizer), (self.opt_disc, self.disc)):
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
        return loss_ae.item(), loss_d.item()

    def remember(self, loss_d):
        g = torch.autograd.grad(loss_d, list(self.disc.parameters()), retain_graph=True)
        g = torch.cat([t.flatten() for t in g])
        self.disc_ref = g if self.disc_ref is None else self.disc_ref + g

    def compare(self):
        have = torch.cat([p.grad.flatten() for p in self.disc.parameters()])
        self.gaps.append(
            ((have - self.disc_ref).norm() / (self.disc_ref.norm() + 1e-12)).item()
        )


def main():
    hp = parser.parse_args()
    torch.manual_seed(1234)
    gen = torch.Generator().manual_seed(77)
    model = VQGAN(hp)
    for batch_idx in itertools.count():
        if batch_idx >= hp.steps * hp.grad_accumulates:
            break
        la, ld = model.training_step(stripes(hp.batch_size, gen), batch_idx)
        if batch_idx % 20 == 0:
            print(f"batch {batch_idx:3d}  ae {la:.4f}  disc {ld:.4f}")
    with torch.no_grad():
        x = stripes(32, gen)
        rec, _, idx = model.tokenizer(x)
        real, fake = model.disc(x)[0].mean(), model.disc(rec)[0].mean()
    print(
        f"test l1 {F.l1_loss(rec, x).item():.4f}  codes used {idx.unique().numel()}  D(real) {real:.3f}  D(fake) {fake:.3f}"
    )
    if hp.prove:
        gap = sum(model.gaps) / len(model.gaps)
        print(
            f"relative gap between the discriminator's applied gradient and that of its own loss: {gap:.5f}"
        )
        print("fault shows:", "yes" if gap > 1e-3 else "no")


if __name__ == "__main__":
    main()
