"""Physics-informed network for the viscous Burgers equation

    u_t + u u_x = nu u_xx,   x in [-1, 1], t in [0, 1],
    u(x, 0) = -sin(pi x),    u(-1, t) = u(1, t) = 0.

Adam on freshly drawn collocation points, then L-BFGS on a fixed set.
The error is measured against a finite-difference solution.
"""
import argparse
import math

import numpy as np
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
NU = 0.05


def reference_solution(nx=201, nt=4000):
    """Explicit scheme, central differences; returns x and u(x, 1)."""
    x = np.linspace(-1, 1, nx)
    dx, dt = x[1] - x[0], 1.0 / nt
    u = -np.sin(np.pi * x)
    for _ in range(nt):
        flux = 0.5 * u**2
        new = u.copy()
        new[1:-1] += dt * (
            -(flux[2:] - flux[:-2]) / (2 * dx)
            + NU * (u[2:] - 2 * u[1:-1] + u[:-2]) / dx**2
        )
        new[0] = new[-1] = 0.0
        u = new
    return x, u


class Net(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        sizes = [2] + [width] * depth
        self.hidden = nn.ModuleList(
            nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])
        )
        self.out = nn.Linear(width, 1)
        for lin in [*self.hidden, self.out]:
            nn.init.xavier_normal_(lin.weight)
            nn.init.zeros_(lin.bias)

    def forward(self, x, t):
        h = torch.cat([x, 2 * t - 1], dim=1)
        for lin in self.hidden:
            h = torch.tanh(lin(h))
        return self.out(h)


def grad(y, x):
    return torch.autograd.grad(
        y, x, grad_outputs=torch.ones_like(y), create_graph=True
    )[0]


def residual(net, x, t):
    x = x.clone().requires_grad_(True)
    t = t.clone().requires_grad_(True)
    u = net(x, t)
    u_x, u_t = grad(u, x), grad(u, t)
    u_xx = grad(u_x, x)
    return u_t + u * u_x - NU * u_xx


def draw_points(n_inside, n_edge, gen):
    inside = (
        2 * torch.rand(n_inside, 1, generator=gen) - 1,
        torch.rand(n_inside, 1, generator=gen),
    )
    x0 = 2 * torch.rand(n_edge, 1, generator=gen) - 1
    tb = torch.rand(n_edge, 1, generator=gen)
    return inside, x0, tb


def losses(net, points):
    (x, t), x0, tb = points
    pde = residual(net, x, t).pow(2).mean()
    initial = (net(x0, torch.zeros_like(x0)) + torch.sin(math.pi * x0)).pow(2).mean()
    boundary = (
        net(torch.ones_like(tb), tb).pow(2) + net(-torch.ones_like(tb), tb).pow(2)
    ).mean()
    return pde, initial, boundary


def total_loss(parts):
    pde, initial, boundary = parts
    return pde + 10.0 * initial + 10.0 * boundary


def relative_error(net, x_ref, u_ref):
    net.eval()
    with torch.no_grad():
        x = torch.from_numpy(x_ref).unsqueeze(1)
        u = net(x, torch.ones_like(x)).squeeze(1).numpy()
    net.train()
    return np.linalg.norm(u - u_ref) / np.linalg.norm(u_ref)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300, help="Adam steps")
    p.add_argument(
        "--lbfgs", type=int, default=15, help="outer L-BFGS steps of 5 iterations"
    )
    p.add_argument("--seed", type=int, default=11)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed + 1)
    x_ref, u_ref = reference_solution()

    net = Net()
    adam = torch.optim.Adam(net.parameters(), lr=5e-3)
    decay = torch.optim.lr_scheduler.StepLR(adam, step_size=100, gamma=0.5)
    for step in range(args.steps):
        parts = losses(net, draw_points(600, 100, gen))
        loss = total_loss(parts)
        adam.zero_grad()
        loss.backward()
        adam.step()
        decay.step()
        if step % 50 == 0:
            print(
                f"adam {step:4d}  pde {parts[0].item():.2e}  ic {parts[1].item():.2e}  bc {parts[2].item():.2e}  "
                f"rel. error {relative_error(net, x_ref, u_ref):.3f}"
            )

    points = draw_points(1000, 150, gen)
    lbfgs = torch.optim.LBFGS(
        net.parameters(),
        lr=1.0,
        max_iter=5,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def closure():
        lbfgs.zero_grad()
        loss = total_loss(losses(net, points))
        loss.backward()
        return loss

    for step in range(args.lbfgs):
        loss = lbfgs.step(closure)
        if step % 5 == 4:
            print(
                f"lbfgs {step + 1:3d}  loss {loss.item():.2e}  rel. error {relative_error(net, x_ref, u_ref):.3f}"
            )


if __name__ == "__main__":
    main()
