"""A Helmholtz machine of binary units draws panes of stained glass: wake-sleep.

Two nets with an optimizer each and no loss in common: each learns from samples of the
other, which are drawn without gradient, by detached importance weights. The gradient of
the recognition stays in `.grad` after the wake phase, and the sleep phase, on dreams of
the other net, adds the other half before the step. The loss of the sleep falls slowly
by nature.
"""

import argparse
import math

import torch
from torch import nn
from torch.distributions import Bernoulli
from torch.nn import functional as F


class PaneFactory:
    """One of 5 left halves and one of 5 right ones, with a few flipped cells."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        motif = torch.rand(2, 5, 8, 4, generator=self.gen) < 0.45
        self.motif = motif.float()

    def make(self, n):
        pick = torch.randint(5, (2, n), generator=self.gen)
        pane = torch.cat(
            [self.motif[0, pick[0]], self.motif[1, pick[1]]], dim=2
        ).flatten(1)
        flip = (torch.rand(pane.shape, generator=self.gen) < 0.02).float()
        return (pane - flip).abs()


def log_bern(logits, value):
    return -F.binary_cross_entropy_with_logits(logits, value, reduction="none").sum(-1)


class Generative(nn.Module):
    def __init__(self, n_top, n_mid, n_vis):
        super().__init__()
        self.top = nn.Parameter(torch.zeros(n_top))
        self.mid = nn.Linear(n_top, n_mid)
        self.vis = nn.Linear(n_mid, n_vis)

    def log_joint(self, x, mid, top):
        return (
            log_bern(self.top.expand_as(top), top)
            + log_bern(self.mid(top), mid)
            + log_bern(self.vis(mid), x)
        )

    @torch.no_grad()
    def dream(self, n):
        top = Bernoulli(logits=self.top.expand(n, -1)).sample()
        mid = Bernoulli(logits=self.mid(top)).sample()
        return Bernoulli(logits=self.vis(mid)).sample(), mid, top


class Recognition(nn.Module):
    def __init__(self, n_top, n_mid, n_vis):
        super().__init__()
        self.mid = nn.Sequential(nn.Linear(n_vis, 48), nn.Tanh(), nn.Linear(48, n_mid))
        self.top = nn.Sequential(nn.Linear(n_mid, 32), nn.Tanh(), nn.Linear(32, n_top))

    @torch.no_grad()
    def sample(self, x):
        mid = Bernoulli(logits=self.mid(x)).sample()
        return mid, Bernoulli(logits=self.top(mid)).sample()

    def log_prob(self, x, mid, top):
        return log_bern(self.mid(x), mid) + log_bern(self.top(mid), top)


class HelmholtzMachine:
    def __init__(self, data, n_top=10, n_mid=24, particles=8, lr=0.02):
        n_vis = data.shape[1]
        self.p = Generative(n_top, n_mid, n_vis)
        self.q = Recognition(n_top, n_mid, n_vis)
        with torch.no_grad():  # visible bias starts at the pixel log-odds
            mean = data.mean(0).clamp(0.02, 0.98)
            self.p.vis.bias.copy_(torch.log(mean / (1 - mean)))
        # No loss is ever shared between the two: each network is the other's teacher.
        self.opt_p = torch.optim.Adam(self.p.parameters(), lr=lr)
        self.opt_q = torch.optim.Adam(self.q.parameters(), lr=lr)
        self.scheds = [
            torch.optim.lr_scheduler.ExponentialLR(o, 0.985)
            for o in (self.opt_p, self.opt_q)
        ]
        self.k = particles

    def particle_terms(self, x, k):
        xk = x.unsqueeze(0).expand(k, -1, -1)
        mid, top = self.q.sample(xk)
        return self.p.log_joint(xk, mid, top), self.q.log_prob(xk, mid, top)

    def wake(self, x):
        """Real panes: p learns from weighted explanations, q moves to the better.

        The weights are numbers, not functions to differentiate.
        """
        log_p, log_q = self.particle_terms(x, self.k)
        log_w = (log_p - log_q).detach()
        w = log_w.softmax(dim=0)
        self.opt_p.zero_grad()
        self.opt_q.zero_grad()
        # p's parameters occur in log_p alone, q's in log_q alone
        (-(w * log_p).sum(0).mean() - 0.5 * (w * log_q).sum(0).mean()).backward()
        self.opt_p.step()
        # q's gradient stays: the sleep phase adds the other half before q steps
        return -(log_w.logsumexp(0) - math.log(self.k)).mean().item()

    def sleep(self, n):
        """Dreams: their cause is known, so q learns it by plain likelihood."""
        x, mid, top = self.p.dream(n)
        loss = -0.5 * self.q.log_prob(x, mid, top).mean()
        loss.backward()
        self.opt_q.step()
        return 2 * loss.item()

    def end_epoch(self):
        for s in self.scheds:
            s.step()

    @torch.no_grad()
    def nats(self, x, k=64):
        log_p, log_q = self.particle_terms(x, k)
        return -((log_p - log_q).logsumexp(0) - math.log(k)).mean().item()


class Workshop:
    def __init__(self):
        torch.manual_seed(8)
        factory = PaneFactory(seed=21)
        self.train, self.test = factory.make(800), factory.make(300)
        self.machine = HelmholtzMachine(self.train)
        self.order = torch.Generator().manual_seed(3)

    def independent_pixels(self):
        m = self.train.mean(0).clamp(1e-3, 1 - 1e-3)
        return (
            -log_bern(torch.log(m / (1 - m)).expand_as(self.test), self.test)
            .mean()
            .item()
        )

    def run(self, epochs, batch=80):
        for epoch in range(epochs):
            awake, asleep, n = 0.0, 0.0, 0
            for idx in torch.randperm(len(self.train), generator=self.order).split(
                batch
            ):
                awake += self.machine.wake(self.train[idx])
                asleep += self.machine.sleep(batch)
                n += 1
            self.machine.end_epoch()
            print(f"epoch {epoch:2d}  wake {awake / n:7.3f}  sleep {asleep / n:7.3f}")
        base, nats = self.independent_pixels(), self.machine.nats(self.test)
        print(
            f"held-out nats/pane {nats:.2f}  against {base:.2f} for independent pixels"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    Workshop().run(parser.parse_args().epochs)
