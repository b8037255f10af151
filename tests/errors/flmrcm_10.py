"""FLMRCM-10: the adversarial part of the generator's loss is a number.

Source: guopengf/FL-MRCM#10. To spare memory the loss against the domain
discriminator is detached and read out where it is computed, and the number is added
to the reconstruction loss: the total looks right, and the encoder never learns to
hide the domain. --fixed detaches only what is put into the record.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Reconstructor(nn.Module):
    def __init__(self, length=32, width=20):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(length, 48), nn.ReLU(), nn.Linear(48, width)
        )
        self.decoder = nn.Sequential(
            nn.ReLU(), nn.Linear(width, 48), nn.ReLU(), nn.Linear(48, length)
        )

    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), code


class LocalUpdate:
    """The training at one site, whose scans differ from those of the other."""

    def __init__(self, keep_graph, weight=0.5):
        self.net = Reconstructor()
        self.discriminator = nn.Sequential(
            nn.Linear(20, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.optimizer_d = torch.optim.Adam(self.discriminator.parameters(), lr=2e-3)
        self.keep_graph = keep_graph
        self.weight = weight
        self.record = {"rec": [], "adv_g": [], "adv_d": []}

    def generator_loss(self, source, target, clean):
        image, code = self.net(source)
        _, other = self.net(target)
        loss_rec = F.l1_loss(image, clean)
        verdict = self.discriminator(torch.cat([code, other]))
        fooled = torch.cat([torch.zeros(len(code)), torch.ones(len(other))])
        loss_adv_g = F.binary_cross_entropy_with_logits(verdict.squeeze(1), fooled)
        self.record["rec"].append(loss_rec.item())
        if self.keep_graph:
            self.record["adv_g"].append(loss_adv_g.detach().item())
        else:
            loss_adv_g = loss_adv_g.detach().item()
            self.record["adv_g"].append(loss_adv_g)
        return loss_rec + self.weight * loss_adv_g

    def discriminator_loss(self, source, target):
        with torch.no_grad():
            code, other = self.net(source)[1], self.net(target)[1]
        verdict = self.discriminator(torch.cat([code, other])).squeeze(1)
        domain = torch.cat([torch.ones(len(code)), torch.zeros(len(other))])
        loss = F.binary_cross_entropy_with_logits(verdict, domain)
        self.record["adv_d"].append(loss.item())
        return loss

    def step(self, source, target, clean):
        self.optimizer.zero_grad()
        loss = self.generator_loss(source, target, clean)
        loss.backward()
        self.optimizer.step()
        self.optimizer_d.zero_grad()
        self.discriminator_loss(source, target).backward()
        self.optimizer_d.step()
        return loss.item()

    def encoder_gradient(self, weight, batch):
        self.weight = weight
        self.net.zero_grad()
        self.generator_loss(*batch).backward()
        return torch.cat([p.grad.flatten() for p in self.net.encoder.parameters()])


def scans(count):
    """(undersampled scan of this site, one of the other site, full scan)."""
    phase = 6.28 * torch.rand(count, 1)
    grid = torch.linspace(0, 6.28, 32)
    clean = torch.sin(phase + grid) * (0.5 + torch.rand(count, 1))
    source = clean * (torch.rand(clean.shape) < 0.7)
    target = 1.4 * torch.sin(2 * phase + grid) + 0.3
    return source, target, clean


def main():
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--prove", action="store_true")
    cli.add_argument("--steps", type=int, default=30)
    options = cli.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    site = LocalUpdate(keep_graph=options.fixed)
    for step in range(options.steps):
        loss = site.step(*scans(48))
        parts = " ".join(f"{k} {v[-1]:.4f}" for k, v in site.record.items())
        print(f"step {step} loss {loss:.4f} {parts}", flush=True)
    if options.prove:
        batch = scans(48)
        without = site.encoder_gradient(0.0, batch)
        strong = site.encoder_gradient(10.0, batch)
        print("fault shows:", "yes" if torch.equal(without, strong) else "no")


if __name__ == "__main__":
    main()
