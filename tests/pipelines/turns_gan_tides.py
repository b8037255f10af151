"""Adversarial generator of tide curves: both networks take turns in one loop.

One body serves both turns: both networks are cleared, one loss goes backward through
both (nothing is detached), and only the optimizer whose turn it is steps.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=120)
options = parser.parse_args()

torch.manual_seed(3)
TIMES = torch.linspace(0, 6.28, 24)


def curves(count):
    phase = 6.28 * torch.rand(count, 1)
    height = 0.5 + torch.rand(count, 1)
    return height * torch.sin(TIMES + phase) + 0.02 * torch.randn(count, 24)


generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 24))
critic = nn.Sequential(nn.Linear(24, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
optimizers = {
    "critic": torch.optim.Adam(critic.parameters(), lr=4e-4, betas=(0.5, 0.9)),
    "generator": torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9)),
}

for step in range(options.steps):
    for turn, optimizer in optimizers.items():
        generator.zero_grad()
        critic.zero_grad()
        scores = critic(generator(torch.randn(32, 8)))
        if turn == "critic":
            loss = F.relu(1 - critic(curves(32))).mean() + F.relu(1 + scores).mean()
        else:
            loss = -scores.mean()
        loss.backward()
        optimizer.step()
    if step % 40 == 39:
        print(step, loss.item())
