"""Which district does a canal junction belong to? APPNP on one graph, with a hand-made line search.

Full-batch and without dropout on purpose: an Armijo search compares losses at different weights,
which only means something if the loss is a fixed function. Every optimizer step evaluates the
closure several times, moves the weights on trial, takes them back and tries a shorter step.
The loss therefore never rises. The weights used in the end are those of the best validation step.
"""
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class ArmijoDescent(torch.optim.Optimizer):
    """Descent along momentum-corrected gradients, the step's length found by backtracking."""

    def __init__(
        self, params, first=1.0, grow=2.0, shrink=0.5, slope=0.1, momentum=0.8, tries=30
    ):
        super().__init__(
            params,
            dict(
                first=first,
                grow=grow,
                shrink=shrink,
                slope=slope,
                momentum=momentum,
                tries=tries,
            ),
        )
        if len(self.param_groups) != 1:
            raise ValueError(
                "one parameter group only: there is one common step length"
            )
        self.evaluations = 0

    @torch.no_grad()
    def step(self, closure):
        group = self.param_groups[0]
        params = group["params"]
        with torch.enable_grad():
            loss = closure(True)
        self.evaluations += 1
        grads = [p.grad.clone() for p in params]
        shared = self.state[params[0]]
        old = shared.get("direction")
        direction = [-g for g in grads]
        if old is not None:
            direction = [d + group["momentum"] * o for d, o in zip(direction, old)]
        descent = sum((d * g).sum() for d, g in zip(direction, grads)).item()
        steepest = sum((g * g).sum() for g in grads).item()
        if descent > -0.1 * steepest:  # not downhill enough: forget the momentum
            direction, descent = [-g for g in grads], -steepest
        at = [p.clone() for p in params]
        length = shared.get("length", group["first"] / group["grow"]) * group["grow"]
        for _ in range(group["tries"]):
            for p, a, d in zip(params, at, direction):
                p.copy_(a + length * d)
            trial = closure(False)
            self.evaluations += 1
            if trial <= loss + group["slope"] * length * descent:
                shared["length"], shared["direction"] = length, direction
                return loss
            length *= group["shrink"]
        for p, a in zip(params, at):  # nothing shorter helps either: stay
            p.copy_(a)
        shared.pop("direction", None)
        shared["length"] = group["first"]
        return loss


def canal_map(nodes, districts, g):
    """A stochastic block model with weak features."""
    y = torch.arange(nodes) % districts
    same = y[:, None] == y[None]
    p = torch.where(same, 0.06, 0.008)
    upper = (torch.rand(nodes, nodes, generator=g) < p).triu(1)
    adjacency = (upper | upper.T).float() + torch.eye(
        nodes
    )  # symmetric, self-loops once
    scale = adjacency.sum(1).rsqrt()
    walk = (scale[:, None] * adjacency * scale[None]).to_sparse()
    centres = torch.randn(districts, 24, generator=g)
    x = 0.45 * centres[y] + torch.randn(nodes, 24, generator=g)
    return x, y, walk


def split(y, per_class, g):
    """Few labelled junctions per district; the rest is half validation, half test."""
    order = torch.randperm(len(y), generator=g)
    train = torch.cat([order[y[order] == c][:per_class] for c in y.unique()])
    rest = order[~torch.isin(order, train)]
    valid, test = rest[: len(rest) // 2], rest[len(rest) // 2 :]
    assert not (
        set(train.tolist()) & set(valid.tolist())
        or set(valid.tolist()) & set(test.tolist())
    )
    return train, valid, test


class Appnp(nn.Module):
    """An MLP per node, then personalised PageRank on its predictions."""

    def __init__(self, columns, classes, hops=8, teleport=0.15):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(columns, 32), nn.Tanh(), nn.Linear(32, classes)
        )
        self.hops, self.teleport = hops, teleport

    def forward(self, x, walk):
        own = self.mlp(x)
        z = own
        for _ in range(self.hops):
            z = (1 - self.teleport) * torch.sparse.mm(walk, z) + self.teleport * own
        return z


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    steps = ap.parse_args().steps
    torch.manual_seed(19)
    g = torch.Generator().manual_seed(20)
    x, y, walk = canal_map(480, 4, g)
    train, valid, test = split(y, 12, g)
    net = Appnp(x.shape[1], 4)
    opt = ArmijoDescent(net.parameters())

    def objective():
        """Data term and an explicit L2 term: the search has to see the whole of it."""
        l2 = sum(p.square().sum() for p in net.parameters() if p.ndim > 1)
        return F.cross_entropy(net(x, walk)[train], y[train]) + 2e-3 * l2

    def closure(backward):
        if not backward:
            return objective().item()  # called without gradients by the search
        opt.zero_grad()
        loss = objective()
        loss.backward()
        return loss.item()

    @torch.no_grad()
    def accuracy(rows):
        return (net(x, walk)[rows].argmax(1) == y[rows]).float().mean().item()

    losses, best, kept = [], -1.0, None
    untrained = accuracy(test)
    for step in range(steps):
        losses.append(opt.step(closure))
        now = accuracy(valid)
        if now > best:
            best, kept = now, copy.deepcopy(net.state_dict())
        if step % 10 == 0 or step == steps - 1:
            length = opt.state[opt.param_groups[0]["params"][0]]["length"]
            print(
                f"step {step:2d} loss {losses[-1]:.4f} length {length:.4f} evaluations "
                f"{opt.evaluations} valid {now:.3f}"
            )
    assert all(
        b <= a + 1e-6 for a, b in zip(losses, losses[1:])
    ), "an Armijo step never goes up"
    net.load_state_dict(kept)
    final = accuracy(test)  # once, with the weights chosen on validation
    with torch.no_grad():
        plain = (net.mlp(x)[test].argmax(1) == y[test]).float().mean().item()
    print(
        f"loss {losses[0]:.3f} -> {losses[-1]:.3f}; test accuracy {untrained:.3f} -> {final:.3f} "
        f"(same net without the graph {plain:.3f})"
    )
    if steps >= 60:
        assert losses[-1] < 0.6 * losses[0] and final > 0.75 and final > plain


if __name__ == "__main__":
    main()
