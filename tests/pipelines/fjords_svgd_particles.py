#!/usr/bin/env python
"""Salinity against depth in a fjord with error bars: Stein variational gradient descent.

P small networks ("particles") live stacked in one set of tensors.  There is no loss.backward():
the gradient of the log posterior of each particle comes from torch.func, is mixed by the kernel,
gets its repulsive term, and is written into .grad by hand with the sign that Adam (a minimiser)
needs.
"""
import argparse
import copy
import math

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap


class Profile(nn.Module):
    """Depth -> salinity; the noise level is one of the unknowns."""

    def __init__(self, width=20):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(1, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )
        self.log_noise = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.body(x).squeeze(-1), self.log_noise


def casts(n, gen, low=-1.0, high=1.0):
    depth = low + (high - low) * torch.rand(n, 1, generator=gen)
    clean = 1.2 * torch.tanh(4 * (depth[:, 0] + 0.3)) + 0.35 * torch.sin(
        5 * depth[:, 0]
    )
    return depth, clean + 0.15 * torch.randn(n, generator=gen)


def gaussian_logpdf(y, mean, log_std):
    return (
        -0.5 * ((y - mean) / log_std.exp()) ** 2 - log_std - 0.5 * math.log(2 * math.pi)
    )


def make_log_posterior(skeleton, n_total):
    def log_posterior(params, x, y):
        mean, log_noise = functional_call(skeleton, params, (x,))
        # minibatch likelihood scaled up to the whole cruise
        loglik = gaussian_logpdf(y, mean, log_noise).mean() * n_total
        logprior = sum(
            -0.5 * (p**2).sum() for k, p in params.items() if k != "log_noise"
        )
        logprior = logprior - 0.5 * (params["log_noise"] + 1.0) ** 2
        return loglik + logprior

    return log_posterior


def flatten(tree, particles):
    return torch.cat([t.reshape(particles, -1) for t in tree.values()], dim=1)


def stein_direction(theta, score):
    """phi(theta_i) = mean_j [ k(j, i) score_j + grad_j k(j, i) ],  RBF, median heuristic."""
    p = theta.shape[0]
    sq = torch.cdist(theta, theta) ** 2
    off_diagonal = sq[~torch.eye(p, dtype=torch.bool)]
    h = off_diagonal.median().clamp_min(1e-8) / math.log(p + 1)
    k = torch.exp(-sq / h)
    repulse = (2 / h) * (k.sum(1, keepdim=True) * theta - k @ theta)
    return (k @ score + repulse) / p


@torch.no_grad()
def predict(skeleton, params, x):
    return vmap(lambda p: functional_call(skeleton, p, (x,)))(params)


def predictive_nll(skeleton, params, x, y):
    mean, log_noise = predict(skeleton, params, x)
    logp = gaussian_logpdf(y, mean, log_noise[:, None])
    return -(torch.logsumexp(logp, 0) - math.log(mean.shape[0])).mean().item()


# size: the whole run in one place, read from top to bottom
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--particles", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()

    torch.manual_seed(11)
    gen = torch.Generator().manual_seed(12)
    x_train, y_train = casts(256, gen)
    x_test, y_test = casts(400, gen)
    n = len(x_train)

    nets = [Profile() for _ in range(args.particles)]
    params, buffers = stack_module_state(nets)
    assert not buffers
    skeleton = copy.deepcopy(nets[0]).to("meta")  # structure only: it holds no numbers

    optimizer = torch.optim.Adam(params.values(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, args.steps, eta_min=1e-3
    )
    score_fn = vmap(
        grad_and_value(make_log_posterior(skeleton, n)), in_dims=(0, None, None)
    )

    nll_start = predictive_nll(skeleton, params, x_test, y_test)
    print(f"start: predictive nll {nll_start:.3f}")

    log_post = []
    for step in range(args.steps):
        rows = torch.randint(0, n, (args.batch,), generator=gen)
        detached = {k: v.detach() for k, v in params.items()}
        scores, values = score_fn(detached, x_train[rows], y_train[rows])

        phi = stein_direction(
            flatten(detached, args.particles), flatten(scores, args.particles)
        )
        offset = 0
        for name, p in params.items():
            width = p[0].numel()
            # ascent on phi = descent on -phi; /n keeps the size of an ordinary mean loss
            p.grad = (
                (-phi[:, offset : offset + width] / n).reshape(p.shape).contiguous()
            )
            offset += width
        assert offset == phi.shape[1]
        optimizer.step()
        schedule.step()

        log_post.append(values.mean().item() / n)
        if step % 100 == 0:
            print(
                f"step {step:4d} mean log posterior / n {log_post[-1]:8.3f} "
                f"test nll {predictive_nll(skeleton, params, x_test, y_test):.3f}"
            )

    nll_end = predictive_nll(skeleton, params, x_test, y_test)
    mean, log_noise = predict(skeleton, params, x_test)
    total_std = (mean.var(0) + (2 * log_noise).exp().mean()).sqrt()
    inside = ((y_test - mean.mean(0)).abs() < 1.645 * total_std).float().mean().item()

    # beyond the deepest bottle the particles should disagree more than between the bottles
    inner, _ = predict(skeleton, params, torch.linspace(-0.9, 0.9, 50)[:, None])
    outer, _ = predict(skeleton, params, torch.linspace(1.5, 2.5, 50)[:, None])
    spread_in, spread_out = inner.std(0).mean().item(), outer.std(0).mean().item()

    print(
        f"end: predictive nll {nll_end:.3f}, noise {log_noise.exp().mean():.3f} (truth 0.15)"
    )
    print(f"90% band holds {inside:.2f} of the test casts")
    print(f"spread inside {spread_in:.3f}, below the deepest bottle {spread_out:.3f}")

    assert sum(log_post[-20:]) > sum(log_post[:20])
    assert nll_end < nll_start - 0.5
    if args.steps >= 500:
        assert 0.8 < inside <= 1.0
        assert spread_out > 2 * spread_in > 0, "the particles must not collapse"


if __name__ == "__main__":
    main()
