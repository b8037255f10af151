"""Physics-informed network: solves u'' = f on [0, 1] with zero boundary values, in
double precision. LBFGS with a closure and a strong Wolfe line search, its learning
rate lowered by a scheduler once per outer step.

    python poisson_pinn.py --steps 20
"""

import argparse
import math

import torch


class Field(torch.nn.Module):
    """u(x), a tanh network on a few Fourier features."""

    def __init__(self, hidden=24, bands=3):
        super().__init__()
        self.register_buffer("bands", math.pi * torch.arange(1, bands + 1))
        self.l1 = torch.nn.Linear(1 + 2 * bands, hidden)
        self.l2 = torch.nn.Linear(hidden, hidden)
        self.l3 = torch.nn.Linear(hidden, 1)
        for layer in (self.l1, self.l2, self.l3):
            torch.nn.init.xavier_normal_(layer.weight)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x):
        z = x * self.bands
        h = torch.cat([x, z.sin(), z.cos()], dim=1)
        return self.l3(torch.tanh(self.l2(torch.tanh(self.l1(h)))))


def exact(x):
    return torch.sin(math.pi * x) + 0.5 * torch.sin(3 * math.pi * x)


def source(x):
    first = -(math.pi**2) * torch.sin(math.pi * x)
    return first - 4.5 * math.pi**2 * torch.sin(3 * math.pi * x)


def residual(u, x):
    y = u(x)
    (dy,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (ddy,) = torch.autograd.grad(dy.sum(), x, create_graph=True)
    return ddy - source(x)


def solve(steps, points, lr, gamma):
    u = Field().double()
    inside = torch.linspace(0, 1, points, dtype=torch.float64)[1:-1, None]
    inside.requires_grad_(True)
    ends = torch.tensor([[0.0], [1.0]], dtype=torch.float64)

    optimizer = torch.optim.LBFGS(
        u.parameters(),
        lr=lr,
        max_iter=12,
        history_size=20,
        line_search_fn="strong_wolfe",
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)

    def closure():
        optimizer.zero_grad()
        interior = residual(u, inside).square().mean()
        boundary = u(ends).square().mean()
        loss = 1e-2 * interior + 10 * boundary
        loss.backward()
        return loss

    probe = torch.rand(200, 1, dtype=torch.float64)
    for outer in range(steps):
        loss = optimizer.step(closure)
        scheduler.step()
        if outer % 2 == 0 or outer == steps - 1:
            with torch.no_grad():
                worst = (u(probe) - exact(probe)).abs().max().item()
            print(
                f"outer {outer:3d} loss {loss.item():.6e} largest error {worst:.2e} "
                f"lr {scheduler.get_last_lr()[0]:.3f}",
                flush=True,
            )
    return u


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--seed", type=int, default=1234)
    a = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    solve(a.steps, a.points, a.lr, a.gamma)
