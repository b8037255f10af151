"""Binary RBM on grave goods (which of 24 kinds of relic lie in a grave), by PCD.

No autograd anywhere: the gradient is written into .grad as (model - data) statistics, and a
stock torch.optim.SGD does the momentum and decay. The negative phase continues persistent
chains which are never reset to data. With 10 hidden units the partition function can be
summed exactly (1024 terms), so the true log-likelihood is what is followed - there is no
training loss in the usual sense.
"""
import argparse
import itertools

import torch
from torch import nn

VISIBLE, HIDDEN, CHAINS = 24, 10, 100


def graves(n, gen, customs):
    """Each grave follows one of four burial customs, wealth adds further relics."""
    kind = torch.randint(0, len(customs), (n,), generator=gen)
    wealth = torch.rand(n, 1, generator=gen)
    p = customs[kind]
    p[:, 16:] = p[:, 16:] * (0.3 + 1.0 * (wealth > 0.5).float()).clamp(max=1)
    return (torch.rand(n, VISIBLE, generator=gen) < p).float()


class RBM(nn.Module):
    def __init__(self, mean, gen):
        super().__init__()
        self.w = nn.Parameter(
            0.05 * torch.randn(HIDDEN, VISIBLE, generator=gen), requires_grad=False
        )
        m = mean.clamp(0.02, 0.98)
        self.b = nn.Parameter(torch.log(m / (1 - m)), requires_grad=False)
        self.c = nn.Parameter(torch.zeros(HIDDEN), requires_grad=False)

    def hidden(self, v):
        return torch.sigmoid(v @ self.w.T + self.c)

    def visible(self, h):
        return torch.sigmoid(h @ self.w + self.b)

    def minus_free_energy(self, v):
        return v @ self.b + nn.functional.softplus(v @ self.w.T + self.c).sum(1)

    def log_z(self):
        h = torch.tensor(list(itertools.product((0.0, 1.0), repeat=HIDDEN)))
        return (
            h @ self.c + nn.functional.softplus(h @ self.w + self.b).sum(1)
        ).logsumexp(0)

    def log_likelihood(self, v):
        return (self.minus_free_energy(v).mean() - self.log_z()).item()


def check_statistics(gen):
    """The hand-written data statistics are the derivative of the free energy."""
    rbm = RBM(torch.full((VISIBLE,), 0.4), gen).requires_grad_(True)
    v = (torch.rand(8, VISIBLE, generator=gen) < 0.4).float()
    gw, gb, gc = torch.autograd.grad(
        rbm.minus_free_energy(v).mean(), [rbm.w, rbm.b, rbm.c]
    )
    sw, sb, sc = statistics(rbm, v)
    assert torch.allclose(gw, sw, atol=1e-6) and torch.allclose(gb, sb, atol=1e-6)
    assert torch.allclose(gc, sc, atol=1e-6)


@torch.no_grad()
def statistics(rbm, v):
    h = rbm.hidden(v)  # probabilities: lower variance
    return h.T @ v / len(v), v.mean(0), h.mean(0)


@torch.no_grad()
def gibbs(rbm, v, sweeps, gen):
    for _ in range(sweeps):
        h = torch.bernoulli(rbm.hidden(v), generator=gen)
        v = torch.bernoulli(rbm.visible(h), generator=gen)
    return v


@torch.no_grad()
def fill_in(rbm, v, hidden_cols, gen, sweeps=60):
    """Clamped Gibbs: guess the relics of `hidden_cols` from all others."""
    guess = v.clone()
    guess[:, hidden_cols] = v[:, hidden_cols].mean()
    total = torch.zeros(len(v), len(hidden_cols))
    for s in range(sweeps):
        h = torch.bernoulli(rbm.hidden(guess), generator=gen)
        p = rbm.visible(h)[:, hidden_cols]
        guess[:, hidden_cols] = torch.bernoulli(p, generator=gen)
        if s >= sweeps // 3:
            total += p
    return total / (sweeps - sweeps // 3)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=30)
    ap.add_argument("--sweeps", type=int, default=2)
    args = ap.parse_args()
    gen = torch.Generator().manual_seed(31)
    customs = torch.rand(4, VISIBLE, generator=gen).pow(2.0) * 0.9 + 0.04
    train, test = graves(2000, gen, customs), graves(600, gen, customs)
    check_statistics(torch.Generator().manual_seed(1))

    rbm = RBM(train.mean(0), gen)
    opt = torch.optim.SGD(
        [
            {"params": [rbm.w], "weight_decay": 2e-4},
            {"params": [rbm.b, rbm.c], "weight_decay": 0.0},
        ],
        lr=0.05,
        momentum=0.5,
    )
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 1 - 0.95 * e / args.epochs)
    chains = (torch.rand(CHAINS, VISIBLE, generator=gen) < train.mean(0)).float()

    independent = rbm.b.clone()
    base = (
        (test @ independent - nn.functional.softplus(independent).sum()).mean().item()
    )
    curve = [rbm.log_likelihood(test)]
    print(f"independent relics {base:.3f} nats; RBM at the start {curve[0]:.3f}")
    for epoch in range(1, args.epochs + 1):
        for group in opt.param_groups:  # Hinton's rule: more momentum later
            group["momentum"] = 0.5 if epoch <= 5 else 0.8
        recon = 0.0
        for idx in torch.randperm(len(train), generator=gen).split(100):
            v = train[idx]
            data = statistics(rbm, v)
            chains = gibbs(rbm, chains, args.sweeps, gen)
            model = statistics(rbm, chains)
            for p, d, m in zip((rbm.w, rbm.b, rbm.c), data, model):
                p.grad = m - d
            opt.step()
            recon += (rbm.visible(rbm.hidden(v)) - v).abs().mean().item() * len(v)
        sched.step()
        curve.append(rbm.log_likelihood(test))
        if epoch % 5 == 0:
            print(
                f"epoch {epoch:3d}  test log-likelihood {curve[-1]:.3f}  train "
                f"{rbm.log_likelihood(train):.3f}  recon {recon / len(train):.4f}"
            )

    cols = list(range(0, VISIBLE, 4))
    guess = fill_in(rbm, test, cols, gen)
    err = (guess - test[:, cols]).pow(2).mean().item()
    naive = (train.mean(0)[cols] - test[:, cols]).pow(2).mean().item()
    print(f"fill-in Brier {err:.4f}, by frequency alone {naive:.4f}")
    assert not any(p.requires_grad for p in rbm.parameters())
    assert torch.isfinite(rbm.w).all() and chains.unique().tolist() == [0.0, 1.0]
    if args.epochs >= 20:
        assert curve[-1] > base + 0.5 and err < naive, (curve[-1], base)


if __name__ == "__main__":
    main()
