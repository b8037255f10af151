"""Bernoulli-latent autoencoder of lantern windows trained with the RELAX gradient.

The encoder never sees a plain backward of the loss.  Its gradient is a score-function estimate with a
learned control variate; the control variate (a surrogate network and a temperature) is itself trained to
make that estimate vary less, through a second derivative.  Five latent bits only, so that the estimator
can be compared with the exact gradient by enumeration, before and after training.
"""
import argparse
import itertools
import math

import torch
from torch import nn
from torch.nn import functional as F

BITS, PIX = 5, 30
ALL_CODES = torch.tensor(list(itertools.product([0.0, 1.0], repeat=BITS)))


def make_lanterns(n, gen):
    """Each lantern is an OR of hidden pane groups, with a few flipped pixels."""
    panes = (
        torch.rand(BITS, PIX, generator=torch.Generator().manual_seed(77)) < 0.28
    ).float()
    bits = (
        torch.rand(n, BITS, generator=gen) < torch.tensor([0.5, 0.4, 0.6, 0.3, 0.5])
    ).float()
    x = ((bits @ panes) > 0).float()
    flip = (torch.rand(n, PIX, generator=gen) < 0.03).float()
    return (x - flip).abs()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(PIX, 48), nn.Tanh(), nn.Linear(48, BITS))

    def forward(self, x):
        return self.net(x * 2 - 1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.prior = nn.Parameter(torch.zeros(BITS))
        self.net = nn.Sequential(nn.Linear(BITS, 48), nn.Tanh(), nn.Linear(48, PIX))

    def log_joint(self, x, b):
        """Also defined for relaxed b in (0, 1): the control variate evaluates it there."""
        pixels, target = torch.broadcast_tensors(self.net(b * 2 - 1), x)
        lik = -F.binary_cross_entropy_with_logits(pixels, target, reduction="none")
        pri = b * F.logsigmoid(self.prior) + (1 - b) * F.logsigmoid(-self.prior)
        return lik.sum(-1) + pri.sum(-1)


class Surrogate(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(0.7)))
        self.net = nn.Sequential(nn.Linear(BITS + PIX, 32), nn.Tanh(), nn.Linear(32, 1))
        nn.init.zeros_(self.net[-1].weight)  # begins as REBAR: the correction is zero
        nn.init.zeros_(self.net[-1].bias)


def log_q(logits, b):
    return (b * F.logsigmoid(logits) + (1 - b) * F.logsigmoid(-logits)).sum(-1)


def negative_elbo(gen, logits, x, b):
    return log_q(logits, b) - gen.log_joint(x, b)


def relax_gradient(gen, sur, logits, x, create_graph):
    """Per-row estimate of d E_q[log q - log p] / d logits.  `logits` must require grad."""
    u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
    v = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
    p = torch.sigmoid(logits)
    z = logits + torch.logit(u)
    b = (z > 0).float()  # exact Bernoulli(p) draws, no gradient
    v_cond = b * (v * p + (1 - p)) + (1 - b) * v * (
        1 - p
    )  # the uniform that would have given this b
    z_cond = logits + torch.logit(v_cond.clamp(1e-6, 1 - 1e-6))

    def control(zz):
        soft = torch.sigmoid(zz / sur.log_temperature.exp())
        return negative_elbo(gen, logits.detach(), x, soft) + sur.net(
            torch.cat([soft, x], -1)
        ).squeeze(-1)

    f = negative_elbo(gen, logits, x, b).detach()
    c, c_cond = control(z), control(z_cond)
    # d c / d logits, kept in the graph when the surrogate is to be trained through it
    (path,) = torch.autograd.grad((c - c_cond).sum(), logits, create_graph=create_graph)
    score = (b - p).detach()  # d log q(b) / d logits
    return (f - c_cond).unsqueeze(-1) * score + path, b, f


def exact_gradient(gen, logits, x):
    codes = ALL_CODES.unsqueeze(1)
    lg = logits.detach().clone().requires_grad_(True)
    q = log_q(lg, codes)
    value = (q.exp() * (q - gen.log_joint(x, codes))).sum(0)
    (g,) = torch.autograd.grad(value.sum(), lg)
    return g, value.detach()


def check_unbiased(enc, gen, sur, x, draws=3000):
    """Compare the mean estimate with the exact gradient; return variances of RELAX and of plain REINFORCE."""
    row = x[:1]
    with torch.no_grad():
        base = enc(row)
    lg = base.expand(draws, BITS).clone().requires_grad_(True)
    g, b, f = relax_gradient(gen, sur, lg, row.expand(draws, PIX), create_graph=False)
    g = g.detach()
    truth, _ = exact_gradient(gen, base, row)
    stderr = g.std(0) / draws**0.5 + 1e-4
    z = ((g.mean(0) - truth[0]) / stderr).abs().max().item()
    assert z < 5.0, f"the estimator is biased: {z:.1f} standard errors"
    plain = f.unsqueeze(-1) * (b - torch.sigmoid(lg.detach()))
    return g.var(0).sum().item(), plain.var(0).sum().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=520)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    source = torch.Generator().manual_seed(args.seed)
    train, held = make_lanterns(1500, source), make_lanterns(250, source)

    enc, gen, sur = Encoder(), Generator(), Surrogate()
    opt_enc = torch.optim.Adam(enc.parameters(), lr=4e-3)
    opt_gen = torch.optim.Adam(gen.parameters(), lr=4e-3)
    opt_sur = torch.optim.Adam(sur.parameters(), lr=2e-3)

    def held_out():
        with torch.no_grad():
            logits = enc(held)
        return exact_gradient(gen, logits, held)[1].mean().item()

    first = held_out()
    check_unbiased(enc, gen, sur, held)
    for step in range(1, args.steps + 1):
        x = train[torch.randint(len(train), (args.batch,))]
        logits = enc(x)
        leaf = logits.detach().requires_grad_(
            True
        )  # gradients stop here and are carried on by hand
        g, b, _ = relax_gradient(gen, sur, leaf, x, create_graph=True)

        variance = g.pow(2).sum(-1).mean()  # E[g] does not depend on the surrogate
        sur_params = list(sur.parameters())
        for p, d in zip(sur_params, torch.autograd.grad(variance, sur_params)):
            p.grad = d
        opt_enc.zero_grad()
        logits.backward(g.detach() / len(x))
        opt_gen.zero_grad()
        (-gen.log_joint(x, b).mean()).backward()
        for opt in (opt_enc, opt_gen, opt_sur):
            opt.step()
        if step % 130 == 0:
            print(
                f"step {step:4d} exact negative ELBO {held_out():.3f} grad second moment {variance.item():.3f} "
                f"temperature {sur.log_temperature.exp().item():.2f}"
            )

    last = held_out()
    relax_var, plain_var = check_unbiased(enc, gen, sur, held)
    print(
        f"held-out negative ELBO {first:.2f} -> {last:.2f}; variance relax {relax_var:.3f} plain {plain_var:.3f}"
    )
    if args.steps >= 500:
        assert last < 0.6 * first, "the bound should tighten"
        assert relax_var < plain_var, "the control variate should help"


if __name__ == "__main__":
    main()
