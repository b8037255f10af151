"""A Hamiltonian net learns the orbits of a Duffing oscillator from noisy derivatives.

The loss is on the gradient of the output, so each step differentiates twice. Double
precision, one full batch, whole orbits held out. Adam, whose rate falls twice, then
L-BFGS with a closure. The validation needs autograd, which forward switches on itself.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=260, help="of Adam")
options = parser.parse_args()

torch.set_default_dtype(torch.float64)
torch.manual_seed(14)


def true_field(s):
    q, p = s[..., 0], s[..., 1]
    return torch.stack([p, q - q**3], -1)


def rk4(f, s, h):
    k1 = f(s)
    k2 = f(s + h / 2 * k1)
    k3 = f(s + h / 2 * k2)
    k4 = f(s + h * k3)
    return s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def orbit(start, steps=40, h=0.1, f=true_field):
    out = [start]
    for _ in range(steps - 1):
        out.append(rk4(f, out[-1], h))
    return torch.stack(out, 1)


class HNN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.h = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, s, graph):
        with torch.enable_grad():
            s = s.detach().requires_grad_(True)
            dh = torch.autograd.grad(self.h(s).sum(), s, create_graph=graph)[0]
        return torch.stack([dh[..., 1], -dh[..., 0]], -1)


starts = torch.rand(24, 2) * 3 - 1.5
states = orbit(starts)
targets = true_field(states) + 0.02 * torch.randn_like(states)
# whole orbits are kept apart
tr_s, va_s = states[:18].reshape(-1, 2), states[18:].reshape(-1, 2)
tr_t, va_t = targets[:18].reshape(-1, 2), targets[18:].reshape(-1, 2)

net = HNN()


def train_loss():
    return (net(tr_s, graph=True) - tr_t).square().sum(-1).mean()


def validate():
    net.eval()
    v = (net(va_s, graph=False) - va_t).square().sum(-1).mean().item()
    net.train()
    return v


adam = torch.optim.Adam(net.parameters(), lr=1e-2)
fall = torch.optim.lr_scheduler.MultiStepLR(adam, milestones=[150, 220], gamma=0.4)
for i in range(options.steps):
    adam.zero_grad()
    loss = train_loss()
    loss.backward()
    adam.step()
    fall.step()
    if i % 40 == 0 or i == options.steps - 1:
        print(f"adam  {i:3d} train {loss.item():.5f} valid {validate():.5f}")

lbfgs = torch.optim.LBFGS(
    net.parameters(),
    lr=1.0,
    max_iter=10,
    history_size=20,
    line_search_fn="strong_wolfe",
)


def closure():
    lbfgs.zero_grad()
    loss = train_loss()
    loss.backward()
    return loss


for i in range(8):
    before = lbfgs.step(closure)
    print(f"lbfgs {i:3d} train {before.item():.5f} valid {validate():.5f}")


def energy(s):
    return s[..., 1] ** 2 / 2 + s[..., 0] ** 4 / 4 - s[..., 0] ** 2 / 2


path = orbit(starts[18:], 120, f=lambda s: net(s, graph=False))
drift = (energy(path[:, -1]) - energy(path[:, 0])).abs().mean().item()
print(f"energy drift over 120 steps {drift:.4f}")
