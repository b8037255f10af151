"""Surrogate for a lens's wavefront error, fitted by Levenberg-Marquardt.

No torch.optim here: 120 weights and 320 ray-trace results are small enough for the full
Jacobian in float64. A trial step which does not lower the objective is thrown away and the
damping goes up, so on such iterations the weights do not move at all - that is the method.
The weights of the best validation error are what is kept in the end.
"""
import argparse
import copy

import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

torch.set_default_dtype(torch.float64)


def ray_trace(n, gen, noise):
    """Curvature 1, curvature 2, thickness, index, field angle -> rms wavefront error."""
    u = torch.rand(n, 5, generator=gen) * 2 - 1
    c1, c2, th, ix, fa = u.unbind(1)
    power = (0.5 + 0.15 * ix) * (c1 - c2 + 0.2 * th * c1 * c2)
    coma = fa * (0.6 * c1 + 0.4 * c2)
    astig = fa**2 * (0.8 + 0.3 * th)
    w = 0.7 * power**2 + coma + 0.5 * astig + 0.2 * torch.sin(2 * power)
    return u, (w + noise * torch.randn(n, generator=gen)).unsqueeze(1)


class LevenbergMarquardt:
    """Minimises  mean (f(x) - y)^2 + ridge |w|^2  over all weights of `model`."""

    def __init__(self, model, ridge=1e-6, damping=1e-1):
        self.model = model
        self.ridge = ridge
        self.damping = damping
        self.names = [n for n, _ in model.named_parameters()]
        self.shapes = [p.shape for p in model.parameters()]
        self.accepted = self.rejected = 0

    def _flat(self):
        return torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])

    def _as_dict(self, w):
        parts = w.split([s.numel() for s in self.shapes])
        return {n: part.view(s) for n, part, s in zip(self.names, parts, self.shapes)}

    def _predict(self, w, x):
        return functional_call(self.model, self._as_dict(w), (x,))

    @torch.no_grad()
    def _objective(self, w, x, y):
        return ((self._predict(w, x) - y) ** 2).mean() + self.ridge * w.dot(w)

    def step(self, x, y):
        w = self._flat()
        jac = vmap(
            jacrev(lambda w_, x_: self._predict(w_, x_[None])[0, 0]), in_dims=(None, 0)
        )(w, x)
        with torch.no_grad():
            res = (self._predict(w, x) - y).squeeze(1)
            here = (res**2).mean() + self.ridge * w.dot(w)
            grad = jac.T @ res / len(x) + self.ridge * w
            gauss = jac.T @ jac / len(x) + self.ridge * torch.eye(len(w))
            scale = torch.diag(gauss.diagonal() + 1e-8)
            for _ in range(4):  # a few dampings for one Jacobian
                delta = -torch.linalg.solve(gauss + self.damping * scale, grad)
                there = self._objective(w + delta, x, y)
                if torch.isfinite(there) and there < here:
                    self.damping = max(self.damping / 3, 1e-9)
                    self.accepted += 1
                    for p, (_, new) in zip(
                        self.model.parameters(), self._as_dict(w + delta).items()
                    ):
                        p.copy_(new)
                    return there.item(), True
                self.damping = min(self.damping * 2.5, 1e9)
                self.rejected += 1
        return here.item(), False


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--hidden", type=int, default=17)
    args = ap.parse_args()

    torch.manual_seed(4)
    gen = torch.Generator().manual_seed(21)
    x, y = ray_trace(320, gen, noise=0.02)
    xv, yv = ray_trace(160, gen, noise=0.02)
    xt, yt = ray_trace(400, gen, noise=0.0)
    mean, std = y.mean(), y.std()  # scaling from the training part only
    y, yv = (y - mean) / std, (yv - mean) / std

    net = nn.Sequential(nn.Linear(5, args.hidden), nn.Tanh(), nn.Linear(args.hidden, 1))
    lm = LevenbergMarquardt(net)

    @torch.no_grad()
    def validation():
        return ((net(xv) - yv) ** 2).mean().item()

    v0 = validation()
    best, best_state, best_step = v0, copy.deepcopy(net.state_dict()), 0
    trace = []
    for it in range(1, args.steps + 1):
        obj, moved = lm.step(x, y)
        trace.append(obj)
        v = validation()
        if v < best:
            best, best_state, best_step = v, copy.deepcopy(net.state_dict()), it
        if it % 10 == 0 or it == 1:
            print(
                f"it {it:3d}  objective {obj:.6f}  val mse {v:.6f}  "
                f"damping {lm.damping:.1e}  {'moved' if moved else 'stayed'}"
            )
    net.load_state_dict(best_state)

    with torch.no_grad():
        rmse = ((net(xt) * std + mean - yt) ** 2).mean().sqrt().item()
        spread = yt.std().item()
    print(
        f"{lm.accepted} steps taken, {lm.rejected} trials refused; best at {best_step}"
    )
    print(
        f"val {v0:.4f} -> {best:.5f}; test rmse {rmse:.4f} waves (spread {spread:.4f})"
    )

    assert all(
        b <= a + 1e-12 for a, b in zip(trace, trace[1:])
    ), "objective must not rise"
    assert abs(validation() - best) < 1e-12, "the restored weights are the best ones"
    if args.steps >= 40:
        assert best < 0.05 * v0 and rmse < 0.15 * spread


if __name__ == "__main__":
    main()
