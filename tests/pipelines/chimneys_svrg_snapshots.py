"""Variance-reduced SGD (SVRG) for a convex model of chimney soot types, in double precision.

Habits: an own optimizer that keeps a frozen snapshot of the weights and the full-data gradient there;
every inner step takes the gradient of the same minibatch twice (at the current and at the snapshot
weights) and never calls a loss.backward(); a constant step size that is derived from the smoothness of
the objective, with no decay; convergence is measured by the gradient norm and by the distance to an
optimum that a Newton method found beforehand.
"""
import argparse

import torch
from torch import nn
from torch.func import functional_call

torch.set_default_dtype(torch.float64)
CLASSES, FEATURES, L2 = 4, 16, 0.05


def make_soot(n, gen):
    mix = (
        torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(9))
        / FEATURES**0.5
    )
    centres = 1.2 * torch.randn(
        CLASSES, FEATURES, generator=torch.Generator().manual_seed(10)
    )
    y = torch.randint(CLASSES, (n,), generator=gen)
    x = (
        centres[y]
        + torch.randn(n, FEATURES, generator=gen) @ mix
        + 0.8 * torch.randn(n, FEATURES, generator=gen)
    )
    return x, y


def objective(model, params, x, y):
    logits = functional_call(model, params, (x,))
    ridge = sum(p.pow(2).sum() for p in params.values())
    return nn.functional.cross_entropy(logits, y) + 0.5 * L2 * ridge


class SVRG:
    """x <- x - lr * (g_i(x) - g_i(snapshot) + full gradient at the snapshot)."""

    def __init__(self, model, lr, inner_steps):
        self.model, self.lr, self.inner_steps = model, lr, inner_steps
        self.anchor, self.full, self.age = None, None, 0

    def gradient(self, params, x, y):
        leaves = {k: v.detach().requires_grad_(True) for k, v in params.items()}
        return dict(
            zip(
                leaves,
                torch.autograd.grad(
                    objective(self.model, leaves, x, y), list(leaves.values())
                ),
            )
        )

    def current(self):
        return {k: p.detach() for k, p in self.model.named_parameters()}

    def take_snapshot(self, x, y):
        self.anchor = {k: v.clone() for k, v in self.current().items()}
        self.full = self.gradient(self.anchor, x, y)
        self.age = 0
        return torch.sqrt(sum(g.pow(2).sum() for g in self.full.values())).item()

    def step(self, x, y):
        assert (
            self.anchor is not None and self.age < self.inner_steps
        ), "the snapshot is missing or too old"
        here, there = self.gradient(self.current(), x, y), self.gradient(
            self.anchor, x, y
        )
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                p.sub_(self.lr * (here[name] - there[name] + self.full[name]))
        self.age += 1


def newton_optimum(x, y, iterations=25):
    """Exact reference on the flattened weights; the ridge makes the Hessian positive definite."""
    model = nn.Linear(FEATURES, CLASSES)
    names = [(k, p.shape, p.numel()) for k, p in model.named_parameters()]
    flat = torch.zeros(sum(n for *_, n in names))

    def value(vec):
        params, at = {}, 0
        for k, shape, n in names:
            params[k] = vec[at : at + n].view(shape)
            at += n
        return objective(model, params, x, y)

    for _ in range(iterations):
        g = torch.func.grad(value)(flat)
        flat = flat - torch.linalg.solve(torch.func.hessian(value)(flat), g)
        if g.norm() < 1e-12:
            break
    assert g.norm() < 1e-9, "Newton should converge on a strongly convex problem"
    return flat, value(flat).item()


def flatten(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def run_plain_sgd(x, y, xs, lr, batch, steps, seed):
    """The baseline with the same constant step: it stalls at a noise floor, which is the point."""
    torch.manual_seed(seed)
    model = nn.Linear(FEATURES, CLASSES)
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    picker = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        pick = torch.randint(len(x), (batch,), generator=picker)
        loss = objective(model, dict(model.named_parameters()), x[pick], y[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return (flatten(model) - xs).norm().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--epochs", type=int, default=16, help="outer loops, one snapshot each"
    )
    ap.add_argument("--batch", type=int, default=10)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()

    gen = torch.Generator().manual_seed(args.seed)
    x, y = make_soot(480, gen)
    x_test, y_test = make_soot(300, gen)
    centre, spread = x.mean(0), x.std(0)
    x, x_test = (x - centre) / spread, (x_test - centre) / spread
    optimum, best = newton_optimum(x, y)

    # Softmax regression: the smoothness of one batch is at most 0.5 * max ||[x, 1]||^2 + L2.
    smooth = 0.5 * (x.pow(2).sum(1) + 1).max().item() + L2
    lr, inner = 1.0 / smooth, 2 * len(x) // args.batch
    torch.manual_seed(args.seed)
    model = nn.Linear(FEATURES, CLASSES)
    solver = SVRG(model, lr, inner)
    picker = torch.Generator().manual_seed(args.seed)

    start, norms, gaps = (flatten(model) - optimum).norm().item(), [], []
    for epoch in range(args.epochs):
        norms.append(solver.take_snapshot(x, y))
        with torch.no_grad():
            gaps.append(objective(model, solver.current(), x, y).item() - best)
        for _ in range(inner):
            pick = torch.randint(
                len(x), (args.batch,), generator=picker
            )  # with replacement, as the theory asks
            solver.step(x[pick], y[pick])
        if epoch % 4 == 0 or epoch == args.epochs - 1:
            with torch.no_grad():
                acc = (model(x_test).argmax(1) == y_test).double().mean().item()
            print(
                f"epoch {epoch:2d} |full gradient| {norms[-1]:.2e} suboptimality {gaps[-1]:.2e} test accuracy {acc:.3f}"
            )

    assert all(g >= -1e-12 for g in gaps), "nothing can be below the optimum"
    assert all(
        p.grad is None for p in model.parameters()
    ), "this solver works without .grad"
    end = (flatten(model) - optimum).norm().item()
    plain = run_plain_sgd(x, y, optimum, lr, args.batch, args.epochs * inner, args.seed)
    print(
        f"distance to the optimum: start {start:.3f}, svrg {end:.2e}, plain sgd with the same step {plain:.2e}"
    )
    if args.epochs >= 12:
        assert norms[-1] < 0.02 * norms[0] and end < 0.1 * start and end < plain


if __name__ == "__main__":
    main()
