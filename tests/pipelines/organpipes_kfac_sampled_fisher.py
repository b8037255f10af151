"""K-FAC written by hand, on the spectra of organ pipes (which stop is sounding?).

Each curvature update does a backward pass with labels SAMPLED from the model's own
distribution; its gradients feed the Kronecker factors and are then wiped. The pass with the
real labels, over the same graph, gives the gradient that is preconditioned.
"""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

STOPS, BINS = 6, 40


def play(n, gen):
    """Spectra of n notes: a stop has its own profile over the harmonics; pitch and loudness vary."""
    profiles = (
        torch.rand(STOPS, 10, generator=torch.Generator().manual_seed(5)) ** 2 + 0.05
    )
    y = torch.randint(STOPS, (n,), generator=gen)
    pitch = 2.0 + 1.6 * torch.rand(n, 1, 1, generator=gen)  # bin of the fundamental
    harmonics = torch.arange(1, 11).view(1, 10, 1)
    bins = torch.arange(BINS).view(1, 1, BINS)
    lines = torch.exp(-0.5 * ((bins - pitch * harmonics) / 0.7) ** 2)
    spec = (profiles[y].unsqueeze(2) * lines).sum(1)
    spec = spec * torch.exp(0.3 * torch.randn(n, 1, generator=gen))  # loudness
    spec = torch.log(spec + 0.05 * torch.rand(n, BINS, generator=gen) + 1e-2)
    return spec, y


class KFAC(torch.optim.Optimizer):
    """Kronecker-factored natural gradient for nn.Linear layers with a bias."""

    def __init__(
        self,
        model,
        lr=0.05,
        momentum=0.9,
        damping=1e-2,
        decay=0.95,
        kl_clip=1e-2,
        every=5,
    ):
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        params = [p for m in self.layers for p in (m.weight, m.bias)]
        assert {id(p) for p in params} == {
            id(p) for p in model.parameters()
        }, "only Linear layers"
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.damping, self.decay, self.kl_clip, self.every = (
            damping,
            decay,
            kl_clip,
            every,
        )
        self.collecting, self.inputs, self.factors, self.inverses = False, {}, {}, {}
        self.updates = 0
        for m in self.layers:
            m.register_forward_hook(self._watch)

    def _watch(self, module, args, out):
        if torch.is_grad_enabled():  # training passes only, not the evaluation
            a = args[0].detach()
            self.inputs[module] = torch.cat([a, a.new_ones(len(a), 1)], 1)
            out.register_hook(lambda g: self._output_grad(module, g))

    def _output_grad(self, module, grad):
        if not self.collecting:
            return
        a = self.inputs[module]
        n = len(a)
        g = grad.detach() * n  # the loss was a mean over n rows
        new_a, new_g = a.T @ a / n, g.T @ g / n
        if module not in self.factors:
            self.factors[module] = [new_a, new_g]
        else:
            for old, new in zip(self.factors[module], (new_a, new_g)):
                old.mul_(self.decay).add_(new, alpha=1 - self.decay)

    def curvature(self, logits):
        """Backward with labels drawn from the model; leaves no gradient behind."""
        with torch.no_grad():
            drawn = torch.multinomial(logits.softmax(1), 1).squeeze(1)
        self.collecting = True
        F.cross_entropy(logits, drawn).backward(retain_graph=True)
        self.collecting = False
        self.zero_grad(set_to_none=True)
        if self.updates % self.every == 0:
            for m, (A, G) in self.factors.items():
                # the damping is split between the factors by their mean eigenvalues
                pi = math.sqrt(
                    (A.trace() / len(A)).item()
                    / max((G.trace() / len(G)).item(), 1e-12)
                )
                root = math.sqrt(self.damping)
                self.inverses[m] = (
                    torch.cholesky_inverse(
                        torch.linalg.cholesky(A + pi * root * torch.eye(len(A)))
                    ),
                    torch.cholesky_inverse(
                        torch.linalg.cholesky(G + root / pi * torch.eye(len(G)))
                    ),
                )
        self.updates += 1

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is None
        group = self.param_groups[0]
        lr, directions, dot = group["lr"], [], 0.0
        for m in self.layers:
            grad = torch.cat([m.weight.grad, m.bias.grad.unsqueeze(1)], 1)
            inv_a, inv_g = self.inverses[m]
            d = inv_g @ grad @ inv_a
            directions.append(d)
            dot += (d * grad).sum().item() * lr**2
        shrink = min(1.0, math.sqrt(self.kl_clip / max(dot, 1e-12)))  # trust region
        for m, d in zip(self.layers, directions):
            for p, piece in ((m.weight, d[:, :-1]), (m.bias, d[:, -1])):
                buf = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(piece, alpha=shrink)
                p.add_(buf, alpha=-lr)
        return shrink


@torch.no_grad()
def score(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return (
        F.cross_entropy(logits, y).item(),
        (logits.argmax(1) == y).float().mean().item(),
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--batch", type=int, default=256)
    args = ap.parse_args()
    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)
    x, y = play(4000, gen)
    vx, vy = play(1000, gen)
    mean, std = x.mean(0), x.std(0)
    x, vx = (x - mean) / std, (vx - mean) / std

    model = nn.Sequential(
        nn.Linear(BINS, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, STOPS),
    )
    opt = KFAC(model, lr=0.1)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: 0.5 * (1 + math.cos(math.pi * min(s / args.steps, 1)))
    )
    first = score(model, vx, vy)
    print(f"before: loss {first[0]:.3f} accuracy {first[1]:.3f}")

    order = torch.randperm(len(x))
    at = 0
    for step in range(args.steps):
        if at + args.batch > len(x):
            order, at = torch.randperm(len(x)), 0
        rows = order[at : at + args.batch]
        at += args.batch
        logits = model(x[rows])
        opt.curvature(logits)  # first backward: sampled labels
        loss = F.cross_entropy(logits, y[rows])
        loss.backward()  # second backward: true labels
        shrink = opt.step()
        opt.zero_grad(set_to_none=True)
        sched.step()
        if step % 25 == 24:
            v = score(model, vx, vy)
            print(
                f"step {step + 1:4d} loss {loss.item():.3f} trust {shrink:.3f} | val {v[0]:.3f} acc {v[1]:.3f}"
            )

    last = score(model, vx, vy)
    for m, (A, G) in opt.factors.items():
        assert torch.allclose(A, A.T) and torch.linalg.eigvalsh(G).min() > -1e-4
    print(f"after: loss {last[0]:.3f} accuracy {last[1]:.3f}")
    if args.steps >= 150:
        assert last[0] < 0.5 * first[0] and last[1] > 0.8, (first, last)


if __name__ == "__main__":
    main()
