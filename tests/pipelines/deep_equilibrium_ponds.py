"""How water spreads between ponds, by a layer that is iterated to its fixed point.

Deep equilibrium: the fixed point is sought without gradient, one more application has
one, and a hook solves the linear system of the backward pass. The number of iterations
differs from step to step; the weight of the layer is kept contractive by spectral
scaling inside forward. The fixed point of the validation is sought more exactly.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def solve(f, x, tolerance, limit):
    """Anderson acceleration with two memories. -> fixed point, number of calls"""
    previous, residual = None, None
    for k in range(1, limit + 1):
        y = f(x)
        r = y - x
        if r.norm() < tolerance * (1 + y.norm()):
            return y, k
        if residual is None:
            following = y
        else:
            gap = (r - residual).flatten()
            share = (gap @ r.flatten()) / (gap @ gap).clamp(min=1e-12)
            share = share.clamp(-2, 2)
            following = y - share * (y - previous)
        previous, residual, x = y, r, following
    return y, k


class Equilibrium(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.near = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.inject = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.calls = 0

    def layer(self, z, x, pipes):
        def limited(w, most):
            return w * (most / torch.linalg.matrix_norm(w, 2).clamp(min=most))

        return torch.tanh(
            z @ limited(self.mix, 0.4) + pipes @ z @ limited(self.near, 0.5) + x
        )

    def forward(self, x, pipes):
        x = self.norm(self.inject(x))
        tolerance, limit = (1e-3, 30) if self.training else (1e-5, 60)
        with torch.no_grad():
            z, self.calls = solve(
                lambda z: self.layer(z, x, pipes), torch.zeros_like(x), tolerance, limit
            )
        z = self.layer(z, x, pipes)
        if torch.is_grad_enabled():
            start = z.detach().clone().requires_grad_()
            after = self.layer(start, x, pipes)

            def backward(grad):
                def pull(g):
                    vjp = torch.autograd.grad(after, start, g, retain_graph=True)[0]
                    return vjp + grad

                return solve(pull, grad, 1e-3, 30)[0]

            z.register_hook(backward)
        return z


class PondNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Linear(3, width)
        self.core = Equilibrium(width)
        self.last = nn.Linear(width, 1)

    def forward(self, x, pipes):
        return self.last(self.core(self.first(x), pipes)).squeeze(-1)


def ponds(n, gen, size=8):
    """-> rain, leak and degree of each pond, pipes (normalised), water level in the long run"""
    pipes = (torch.rand(n, size, size, generator=gen) < 0.3).float().triu(1)
    pipes = pipes + pipes.transpose(1, 2)
    rain = torch.rand(n, size, generator=gen)
    leak = 0.3 + torch.rand(n, size, generator=gen)
    laplace = torch.diag_embed(pipes.sum(2)) - pipes
    level = torch.linalg.solve(laplace + torch.diag_embed(leak), rain)
    scaled = pipes / pipes.sum(2, keepdim=True).clamp(min=1)
    return torch.stack([rain, leak, pipes.sum(2) / 4], 2), scaled, level


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--steps", type=int, default=200)
    args = p.parse_args()
    torch.manual_seed(21)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(1)
    x, pipes, level = ponds(1200, gen)
    valid = ponds(300, gen)
    model = PondNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, amsgrad=True)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, args.steps, power=1.5)
    order = ()
    for step in range(args.steps):
        if not len(order):
            order = torch.randperm(len(x), generator=gen).split(40)
        pick, order = order[0], order[1:]
        loss = F.smooth_l1_loss(model(x[pick], pipes[pick]), level[pick], beta=0.1)
        calls = model.core.calls
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 25 == 24 or step == args.steps - 1:
            model.eval()
            with torch.no_grad():
                off = F.l1_loss(model(*valid[:2]), valid[2]).item()
            print(
                f"step {step + 1:3d} loss {loss.item():.4f} iterations {calls}"
                f" valid {off:.4f} iterations {model.core.calls}"
            )
            model.train()


if __name__ == "__main__":
    main()
