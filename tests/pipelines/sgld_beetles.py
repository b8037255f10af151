"""Lengths of beetles' wings, Bayesian: stochastic gradient Langevin dynamics.

The loss is an energy, the likelihood of the batch scaled to all rows plus the prior: it
stays in the hundreds and is noisy by nature. A wrapper around SGD writes a small rate
into the group before each step and adds noise to the weights after it. Predictions are
averages over weights that were kept in the second half.
"""

import argparse
import math

import torch
from torch import nn
from torch.func import functional_call

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=50)

torch.manual_seed(77)
N, BATCH, EPOCHS = 512, 32, parser.parse_args().epochs
BURN_IN = EPOCHS // 2
PRIOR_VAR, NOISE_VAR = 1.0, 0.3**2


def beetles(n):
    altitude, warmth = torch.rand(n) * 2 - 1, torch.rand(n) * 2 - 1
    sex = torch.randint(0, 2, (n,)).float()
    wing = 0.8 * torch.sin(2.5 * altitude) + 0.5 * warmth + 0.3 * sex
    wing = wing + math.sqrt(NOISE_VAR) * torch.randn(n)
    return torch.stack([altitude, warmth, 2 * sex - 1], 1), wing.unsqueeze(1)


class Wing(nn.Module):
    """One hidden layer; starts from a draw of the prior."""

    def __init__(self, width=40):
        super().__init__()
        self.a, self.c = nn.Linear(3, width), nn.Linear(width, 1)
        self.scale = width**-0.5
        for p in self.parameters():
            nn.init.normal_(p, std=math.sqrt(PRIOR_VAR))

    def forward(self, x):
        return self.c(torch.tanh(self.a(3.0 * x)) * self.scale)


def potential(model, x, y):
    nll = ((model(x) - y) ** 2).sum() / (2 * NOISE_VAR)
    prior = sum((p**2).sum() for p in model.parameters()) / (2 * PRIOR_VAR)
    return nll * (N / len(x)) + prior


class SGLD:
    """theta <- theta - eps/2 * grad U + sqrt(eps) * xi, with eps = a (b + t)^-gamma"""

    def __init__(self, params, a=8e-4, b=20.0, gamma=0.33):
        self.params = list(params)
        self.inner = torch.optim.SGD(self.params, lr=1.0)
        self.a, self.b, self.gamma, self.t = a, b, gamma, 0

    def zero_grad(self):
        self.inner.zero_grad()

    @torch.no_grad()
    def step(self):
        eps = self.a * (self.b + self.t) ** -self.gamma
        self.inner.param_groups[0]["lr"] = eps / 2
        self.inner.step()
        for p in self.params:
            p.add_(torch.randn_like(p), alpha=math.sqrt(eps))
        self.t += 1
        return eps


xt, yt = beetles(N)
xv, yv = beetles(256)
model = Wing()
sampler = SGLD(model.parameters())
posterior = []
for epoch in range(EPOCHS):
    model.train()
    energy = 0.0
    for idx in torch.randperm(N).split(BATCH):
        u = potential(model, xt[idx], yt[idx])
        sampler.zero_grad()
        u.backward()
        eps = sampler.step()
        energy += u.item()
    if epoch >= BURN_IN:
        kept = {k: v.detach().clone() for k, v in model.named_parameters()}
        posterior.append(kept)
    if epoch % 6 == 0 or epoch == EPOCHS - 1:
        model.eval()
        with torch.no_grad():
            rmse = (model(xv) - yv).square().mean().sqrt().item()
        print(
            f"epoch {epoch:2d} energy {energy / (N / BATCH):9.1f} eps {eps:.1e} "
            f"rmse of the current sample {rmse:.4f}"
        )

with torch.no_grad():
    draws = torch.stack([functional_call(model, p, (xv,)) for p in posterior])
mean, spread = draws.mean(0), (draws.var(0) + NOISE_VAR).sqrt()
inside = ((yv - mean).abs() < 1.96 * spread).float().mean().item()
rmse = (yv - mean).square().mean().sqrt()
print(f"{len(posterior)} samples: rmse {rmse:.4f}, 95% interval covers {inside:.1%}")
