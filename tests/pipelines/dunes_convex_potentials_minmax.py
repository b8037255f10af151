"""How winter's sand became summer's: optimal transport with two input-convex networks.

Minimax of Makkuva et al. (2020). f and g are convex potentials; grad g carries the winter
sand Q to the summer sand P. For f the game is a minimisation of E_P f(x) - E_Q f(grad g(y)),
for g a minimisation of E_Q [f(grad g(y)) - <y, grad g(y)>]. g moves several times for each
move of f. Neither loss is a measure of progress; the map is checked against the closed form,
which is known because both sand heaps are Gaussian.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvexPotential(nn.Module):
    """Input-convex network: the weights from hidden to hidden stay non-negative."""

    def __init__(self, dim=2, width=48, depth=3):
        super().__init__()
        self.from_x = nn.ModuleList(nn.Linear(dim, width) for _ in range(depth))
        self.from_z = nn.ModuleList(
            nn.Linear(width, width, bias=False) for _ in range(depth - 1)
        )
        self.out_z = nn.Linear(width, 1, bias=False)
        self.out_x = nn.Linear(dim, 1, bias=False)
        self.raw_curvature = nn.Parameter(
            torch.tensor(math.log(math.e - 1))
        )  # softplus -> 1
        for layer in [*self.from_z, self.out_z]:
            nn.init.uniform_(layer.weight, 0.0, 0.5 / width)

    def forward(self, x):
        z = F.softplus(self.from_x[0](x))
        for fx, fz in zip(self.from_x[1:], self.from_z):
            z = F.softplus(fz(z) + fx(x))
        bowl = 0.5 * F.softplus(self.raw_curvature) * x.square().sum(1, keepdim=True)
        return (self.out_z(z) + self.out_x(x) + bowl).squeeze(1)

    def push(self, x, create_graph):
        """The gradient of the potential with respect to its input: this is the transport map."""
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self(x).sum(), x, create_graph=create_graph)[0]

    @torch.no_grad()
    def project(self):
        for layer in [*self.from_z, self.out_z]:
            layer.weight.clamp_(min=0.0)

    def is_convex(self):
        return all(bool((w.weight >= 0).all()) for w in [*self.from_z, self.out_z])


class Heaps:
    """Q: a round heap at the origin. P: shifted and stretched along a slanted axis."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        a = math.radians(30)
        rot = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
        self.root = (
            rot @ torch.diag(torch.tensor([2.0, 0.6])) @ rot.T
        )  # square root of the covariance
        self.shift = torch.tensor([1.5, -1.0])

    def winter(self, n):
        return torch.randn(n, 2, generator=self.gen)

    def summer(self, n):
        return torch.randn(n, 2, generator=self.gen) @ self.root.T + self.shift

    def true_map(self, y):
        return y @ self.root.T + self.shift

    def unexplained(self, mapped, y):
        """L2-UVP, in per cent: squared error of the map over the variance of P."""
        err = (mapped - self.true_map(y)).square().sum(1).mean()
        return 100 * (err / self.root.square().sum()).item()


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200, help="moves of f")
    ap.add_argument(
        "--inner", type=int, default=5, help="moves of g for each move of f"
    )
    ap.add_argument("--batch", type=int, default=192)
    args = ap.parse_args()
    torch.manual_seed(3)
    heaps = Heaps(seed=31)
    check = heaps.winter(2000)

    f, g = ConvexPotential(), ConvexPotential()
    # low first momentum, as for other games; each side with its own optimiser
    f_opt = torch.optim.Adam(f.parameters(), lr=5e-3, betas=(0.5, 0.9))
    g_opt = torch.optim.Adam(g.parameters(), lr=5e-3, betas=(0.5, 0.9))
    f_sched = torch.optim.lr_scheduler.CosineAnnealingLR(
        f_opt, args.steps, eta_min=2e-4
    )
    g_sched = torch.optim.lr_scheduler.CosineAnnealingLR(
        g_opt, args.steps, eta_min=2e-4
    )

    start = heaps.unexplained(g.push(check, create_graph=False), check)
    print(f"start: {start:.2f}% unexplained")
    for step in range(args.steps):
        f.requires_grad_(False)  # g's turn: f only passes gradients through
        for _ in range(args.inner):
            y = heaps.winter(args.batch)
            moved = g.push(y, create_graph=True)
            g_loss = (f(moved) - (y * moved).sum(1)).mean()
            g_opt.zero_grad()
            g_loss.backward()
            g_opt.step()
            g.project()
        f.requires_grad_(True)

        x, y = heaps.summer(args.batch), heaps.winter(args.batch)
        moved = g.push(y, create_graph=False)  # f's turn: the map is data
        f_loss = f(x).mean() - f(moved).mean()
        f_opt.zero_grad()
        f_loss.backward()
        f_opt.step()
        f.project()
        f_sched.step()
        g_sched.step()

        if step % 40 == 39:
            uvp = heaps.unexplained(g.push(check, create_graph=False), check)
            print(
                f"step {step + 1:4d}  f {f_loss.item():+.3f}  g {g_loss.item():+.3f}  unexplained {uvp:6.2f}%"
            )

    end = heaps.unexplained(g.push(check, create_graph=False), check)
    assert f.is_convex() and g.is_convex()
    # a gradient of a convex function is monotone: <T(a) - T(b), a - b> >= 0
    a, b = heaps.winter(500), heaps.winter(500)
    mono = ((g.push(a, False) - g.push(b, False)) * (a - b)).sum(1)
    assert mono.min() > -1e-4, mono.min()
    print(f"end: {end:.2f}% unexplained (was {start:.2f}%)")
    if args.steps >= 200:
        assert end < 0.15 * start, (start, end)


if __name__ == "__main__":
    main()
