"""Sorting glass beads with equilibrium propagation (Scellier & Bengio 2017; the symmetric
nudging is Laborieux et al. 2021).

A layered Hopfield network: the neurons settle to rest (free phase), are pushed a little towards
and a little away from the target (two nudged phases), and each weight changes by the difference
of two local correlations.  Neither autograd nor a loss with a graph is used: everything runs
under no_grad and .grad is written by hand, then a plain torch optimizer does the rest.
"""
import argparse

import torch
import torch.nn as nn

KINDS, SIDE = 5, 8


def photograph(n, gen):
    """8x8 pictures of a bead: ring, disc, bar, cross or crescent; moved, dimmed, noisy."""
    y = torch.randint(0, KINDS, (n,), generator=gen)
    grid = torch.linspace(-1, 1, SIDE)
    gy, gx = torch.meshgrid(grid, grid, indexing="ij")
    shift = 0.9 * (torch.rand(n, 2, 1, 1, generator=gen) - 0.5)
    dx, dy = gx - shift[:, 0], gy - shift[:, 1]
    r = (dx**2 + dy**2).sqrt()
    shapes = torch.stack(
        [
            ((r - 0.65).abs() < 0.2),
            (r < 0.55),
            (dx.abs() < 0.25),
            ((dx - dy).abs() < 0.25) | ((dx + dy).abs() < 0.25),
            (r < 0.85) & (((dx - 0.45) ** 2 + dy**2).sqrt() > 0.7),
        ],
        dim=1,
    ).float()
    picture = shapes[torch.arange(n), y]
    light = 0.5 + 0.5 * torch.rand(n, 1, 1, generator=gen)
    picture = (picture * light + 0.3 * torch.randn(n, SIDE, SIDE, generator=gen)).clamp(
        0, 1
    )
    return picture.flatten(1), y


class HopfieldLayers(nn.Module):
    def __init__(self, sizes, gain=0.7):
        super().__init__()
        self.sizes = sizes
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for a, b in zip(sizes[:-1], sizes[1:]):
            self.weights.append(nn.Parameter(torch.empty(a, b)))
            nn.init.xavier_uniform_(self.weights[-1], gain=gain)
            self.biases.append(nn.Parameter(torch.zeros(b)))

    def rest(self, x):
        return [x.new_full((len(x), size), 0.0) for size in self.sizes[1:]]

    @torch.no_grad()
    def settle(self, x, states, steps, target=None, beta=0.0, dt=0.5):
        """Follow -dE/ds (+ the nudge on the outputs); states live in [0, 1]."""
        states = [s.clone() for s in states]
        last = len(states) - 1
        for _ in range(steps):
            layers = [x] + states
            moved = []
            for i, s in enumerate(states):
                drive = layers[i] @ self.weights[i] + self.biases[i]
                if i < last:  # the same weights carry the signal back
                    drive = drive + states[i + 1] @ self.weights[i + 1].t()
                elif beta != 0.0:
                    drive = drive + beta * (target - s)
                moved.append((s + dt * (drive - s)).clamp(0, 1))
            states = moved
        return states

    @torch.no_grad()
    def write_gradients(self, x, plus, minus, beta):
        """dE/dW at +beta minus dE/dW at -beta, over 2 beta (E has a minus before s W s')."""
        n = len(x)
        up, down = [x] + plus, [x] + minus
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            corr = up[i].t() @ up[i + 1] - down[i].t() @ down[i + 1]
            w.grad = -corr / (2 * beta * n)
            b.grad = -(up[i + 1] - down[i + 1]).sum(0) / (2 * beta * n)


@torch.no_grad()
def evaluate(net, x, y, steps):
    out = net.settle(x, net.rest(x), steps)[-1]
    target = nn.functional.one_hot(y, KINDS).float()
    cost = 0.5 * ((out - target) ** 2).sum(1).mean().item()
    return cost, (out.argmax(1) == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=9)
    ap.add_argument("--batch", type=int, default=40)
    ap.add_argument("--free", type=int, default=30)
    ap.add_argument("--nudged", type=int, default=10)
    ap.add_argument("--beta", type=float, default=0.3)
    args = ap.parse_args()

    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(4)
    x_train, y_train = photograph(1600, gen)
    x_test, y_test = photograph(600, gen)

    net = HopfieldLayers([SIDE * SIDE, 96, KINDS])
    # the layer near the pixels gets the larger step, as the authors advise
    optimizer = torch.optim.SGD(
        [
            {"params": [net.weights[0], net.biases[0]], "lr": 0.25},
            {"params": [net.weights[1], net.biases[1]], "lr": 0.1},
        ],
        momentum=0.5,
    )

    cost0, acc0 = evaluate(net, x_test, y_test, args.free)
    print(f"untrained: cost {cost0:.3f} accuracy {acc0:.3f}")

    for epoch in range(args.epochs):
        order = torch.randperm(len(x_train), generator=gen)
        running = 0.0
        for rows in order.split(args.batch):
            x, y = x_train[rows], y_train[rows]
            target = nn.functional.one_hot(y, KINDS).float()
            free = net.settle(x, net.rest(x), args.free)
            plus = net.settle(x, free, args.nudged, target, +args.beta)
            minus = net.settle(x, free, args.nudged, target, -args.beta)
            net.write_gradients(
                x, plus, minus, args.beta
            )  # overwrites: no zero_grad needed
            optimizer.step()
            running += 0.5 * ((free[-1] - target) ** 2).sum().item()
        cost, acc = evaluate(net, x_test, y_test, args.free)
        print(
            f"epoch {epoch:2d} free-phase cost {running / len(x_train):.4f} "
            f"test cost {cost:.4f} accuracy {acc:.3f}"
        )

    # the network must really be at rest when the free phase ends
    a = net.settle(x_test, net.rest(x_test), args.free)
    b = net.settle(x_test, a, 1)
    drift = max((p - q).abs().mean().item() for p, q in zip(a, b))
    print(f"mean movement after the free phase {drift:.1e}")
    assert drift < 1e-2
    assert all(p.grad is not None and torch.isfinite(p).all() for p in net.parameters())
    if args.epochs >= 8:
        assert cost < 0.6 * cost0
        assert acc > 0.85


if __name__ == "__main__":
    main()
