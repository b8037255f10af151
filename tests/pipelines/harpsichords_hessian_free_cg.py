"""Hessian-free (truncated Gauss-Newton) training of a small net, full batch.

From the spectrum of a plucked string we estimate how far it is out of tune and
how damped it is. The outer loop is Martens (2010): solve
    (G + damping * I) d = -grad
with a few conjugate-gradient iterations, G being the Gauss-Newton matrix of
the squared error, known only through products  G v = J^T (J v) / n.  A
backtracking line search picks the step, and the Levenberg-Marquardt rule moves
the damping by the ratio of true to predicted decrease. There is no
torch.optim optimizer: weights are one flat vector written back each time.
"""
import argparse

import torch
from torch import nn
from torch.func import functional_call, jvp, vjp
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def make_strings(n, rng):
    """20 bins of a decaying spectrum; peak position encodes detuning."""
    detune = torch.rand(n, generator=rng) * 2 - 1
    damping = torch.rand(n, generator=rng)
    bins = torch.linspace(-2, 2, 20)
    width = 0.25 + 0.5 * damping
    spectrum = torch.exp(-(((bins[None] - detune[:, None]) / width[:, None]) ** 2))
    loud = 0.7 + 0.6 * torch.rand(n, 1, generator=rng)
    x = loud * spectrum + 0.01 * torch.randn(n, 20, generator=rng)
    return x, torch.stack([detune, 2 * damping - 1], dim=1)


class FlatModel:
    """A module seen as a function of one flat vector of weights."""

    def __init__(self, net):
        self.net = net
        self.shapes = [(name, p.shape, p.numel()) for name, p in net.named_parameters()]

    def unflatten(self, flat):
        out, at = {}, 0
        for name, shape, size in self.shapes:
            out[name] = flat[at : at + size].view(shape)
            at += size
        assert at == flat.numel()
        return out

    def outputs(self, flat, x):
        return functional_call(self.net, self.unflatten(flat), (x,))

    def loss(self, flat, x, y):
        return 0.5 * (self.outputs(flat, x) - y).pow(2).sum(1).mean()


def conjugate_gradient(product, b, x0, max_iter, rel_tol=5e-4):
    """Minimise q(x) = x.Ax/2 - b.x; stops when q barely improves (Martens' rule)."""
    x = x0.clone()
    r = b - product(x)
    p = r.clone()
    rr = r.dot(r)
    history = []
    for i in range(max_iter):
        ap = product(p)
        curvature = p.dot(ap)
        assert curvature > 0, "damped Gauss-Newton matrix must be positive definite"
        alpha = rr / curvature
        x = x + alpha * p
        r = r - alpha * ap
        history.append((-0.5 * (r + b).dot(x)).item())
        rr_new = r.dot(r)
        if rr_new < 1e-16:
            break
        window = max(5, i // 10)
        if i > window and history[i] < 0:
            if (history[i] - history[i - window]) / history[i] < window * rel_tol:
                break
        p = r + (rr_new / rr) * p
        rr = rr_new
    return x, len(history)


def check_gauss_newton_symmetry(model, flat, x, rng):
    u, v = (
        torch.randn(flat.numel(), generator=rng, dtype=flat.dtype) for _ in range(2)
    )
    gu, gv = (gauss_newton_product(model, flat, x)(w) for w in (u, v))
    torch.testing.assert_close(v.dot(gu), u.dot(gv), rtol=1e-6, atol=1e-8)
    assert u.dot(gu) >= 0


def gauss_newton_product(model, flat, x):
    f = lambda w: model.outputs(w, x)
    _, pull = vjp(f, flat)

    def product(v):
        _, jv = jvp(f, (flat,), (v,))
        return pull(jv / x.shape[0])[0]  # Hessian of the loss in outputs: I / n

    return product


def hessian_free_step(model, flat, x, y, damping, warm_start, max_cg):
    grad = torch.func.grad(model.loss)(flat, x, y)
    gn = gauss_newton_product(model, flat, x)
    damped = lambda v: gn(v) + damping * v
    direction, iterations = conjugate_gradient(damped, -grad, 0.95 * warm_start, max_cg)

    old = model.loss(flat, x, y).item()
    slope = grad.dot(direction).item()
    if slope >= 0:  # a stale warm start: begin again from zero
        direction, iterations = conjugate_gradient(
            damped, -grad, torch.zeros_like(grad), max_cg
        )
        slope = grad.dot(direction).item()
    assert slope < 0

    predicted = slope + 0.5 * direction.dot(gn(direction)).item()
    rho = (model.loss(flat + direction, x, y).item() - old) / predicted
    if rho > 0.75:
        damping *= 2 / 3
    elif rho < 0.25:
        damping *= 3 / 2

    rate = 1.0
    while rate > 1e-4:
        new = model.loss(flat + rate * direction, x, y).item()
        if new <= old + 1e-2 * rate * slope:
            return flat + rate * direction, direction, damping, new, rate, iterations
        rate *= 0.7
    return flat, torch.zeros_like(direction), damping * 3 / 2, old, 0.0, iterations


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--max-cg", type=int, default=25)
    ap.add_argument("--damping", type=float, default=0.1)
    args = ap.parse_args()

    torch.manual_seed(5)
    torch.set_default_dtype(torch.float64)  # CG likes the extra digits
    rng = torch.Generator().manual_seed(6)
    x, y = make_strings(600, rng)
    x_test, y_test = make_strings(300, rng)

    net = nn.Sequential(
        nn.Linear(20, 24), nn.Tanh(), nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 2)
    )
    model = FlatModel(net)
    flat = parameters_to_vector(net.parameters()).detach().clone()
    check_gauss_newton_symmetry(model, flat, x, rng)

    damping, direction = args.damping, torch.zeros_like(flat)
    with torch.no_grad():
        losses, test_start = [model.loss(flat, x, y).item()], model.loss(
            flat, x_test, y_test
        ).item()
        for step in range(args.steps):
            flat, direction, damping, loss, rate, cg = hessian_free_step(
                model, flat, x, y, damping, direction, args.max_cg
            )
            assert loss <= losses[-1]  # the line search only accepts descent
            losses.append(loss)
            vector_to_parameters(flat, net.parameters())
            if step % 5 == 0 or step == args.steps - 1:
                print(
                    f"outer {step:3d} loss {loss:.6f} rate {rate:.2f} damping {damping:.4f} cg {cg}"
                )

        test_end = (0.5 * (net(x_test) - y_test).pow(2).sum(1).mean()).item()
        baseline = (0.5 * (y_test - y.mean(0)).pow(2).sum(1).mean()).item()
    print(
        f"test loss {test_start:.4f} -> {test_end:.5f} (mean predictor {baseline:.4f})"
    )
    if args.steps >= 40:
        assert test_end < 0.1 * baseline


if __name__ == "__main__":
    main()
