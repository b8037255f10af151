"""Two rain gauges, many possible tomorrows: an "engression" net trained on the energy score.

The network gets fresh noise at its input and between its layers and each forward pass is one
draw from the predictive distribution.  There is no variance head and no likelihood: the loss is
the (unbiased) energy score of m draws,

    mean_i |Y - Y_i|  -  1/(2 m (m-1)) sum_{i != j} |Y_i - Y_j|

The noise is *not* dropout: it has to stay on at evaluation, which scores 60 draws with the CRPS
per gauge and with rank histograms.  (Shen & Meinshausen 2023; Gneiting & Raftery 2007.)
"""
import argparse
import math

import torch
from torch import nn


def weather(n, gen):
    """Six predictors -> square root of the rain at two gauges which share a storm."""
    x = torch.randn(n, 6, generator=gen)
    level = 1.2 + 0.9 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3]
    spread = torch.exp(-0.4 + 0.45 * x[:, 4])
    storm = torch.randn(n, generator=gen)
    own = torch.randn(n, 2, generator=gen)
    slope = torch.tensor([0.3, -0.3]) * x[:, 5:6]
    latent = (
        level[:, None] + slope + spread[:, None] * (0.8 * storm[:, None] + 0.6 * own)
    )
    return x, latent.clamp_min(0.0)  # a dry day is an exact zero


class NoisyLayer(nn.Module):
    def __init__(self, d_in, d_out, d_noise):
        super().__init__()
        self.d_noise = d_noise
        self.lin = nn.Linear(d_in + d_noise, d_out)
        self.norm = nn.LayerNorm(d_out)

    def forward(self, x):
        eps = torch.randn(*x.shape[:-1], self.d_noise, device=x.device)
        return nn.functional.gelu(self.norm(self.lin(torch.cat([x, eps], dim=-1))))


class Engression(nn.Module):
    def __init__(self, d_in=6, width=64, d_noise=8, gauges=2):
        super().__init__()
        self.first = NoisyLayer(d_in, width, d_noise)
        self.second = NoisyLayer(width, width, d_noise)
        self.out = nn.Linear(width, gauges)

    def draws(self, x, m):
        """(m, n, gauges); all draws in one pass."""
        h = self.first(x.expand(m, *x.shape))
        return self.out(h + self.second(h))


def safe_norm(v):
    return (v.pow(2).sum(-1) + 1e-12).sqrt()


def energy_score(samples, y):
    m = samples.shape[0]
    assert m >= 2
    accuracy = safe_norm(samples - y).mean()
    i, j = torch.triu_indices(m, m, offset=1)
    sharpness = safe_norm(samples[i] - samples[j]).mean()
    return accuracy - 0.5 * sharpness


def crps(samples, y):
    """Fair ensemble CRPS for each gauge, by sorted draws."""
    m = samples.shape[0]
    ordered = samples.sort(0).values
    weight = (2 * torch.arange(1, m + 1) - m - 1).view(-1, 1, 1).to(samples)
    pairs = (weight * ordered).sum(0) * 2 / (m * (m - 1))
    return ((samples - y).abs().mean(0) - 0.5 * pairs).mean().item()


@torch.no_grad()
def evaluate(model, x, y, draws=60, seed=77):
    """With its own noise stream, so that looking does not change the training."""
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        samples = model.draws(x, draws).clamp_min(0.0)
        # ties (dry draws on a dry day) get a random rank, as is usual
        jitter = 1e-6 * torch.rand_like(samples)
        ranks = (samples + jitter < y + 1e-6 * torch.rand_like(y)).sum(0)
    model.train()
    coverage = ((ranks >= 0.05 * draws) & (ranks <= 0.95 * draws)).float().mean().item()
    # does it know that the gauges share the storm?
    centred = samples - samples.mean(0)
    corr = (centred[..., 0] * centred[..., 1]).mean() / (
        centred[..., 0].std() * centred[..., 1].std()
    )
    return {
        "crps": crps(samples, y),
        "coverage90": coverage,
        "corr": corr.item(),
        "spread": samples.std(0).mean().item(),
    }


def climatology_crps(train_y, y, draws=60):
    gen = torch.Generator().manual_seed(1)
    idx = torch.randint(0, len(train_y), (draws, len(y)), generator=gen)
    return crps(train_y[idx], y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--draws", type=int, default=4)
    args = ap.parse_args()

    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(9)
    x_train, y_train = weather(4000, gen)
    x_test, y_test = weather(1000, gen)
    model = Engression()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    warm = max(1, args.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda s: min(
            (s + 1) / warm, 0.5 * (1 + math.cos(math.pi * s / args.steps)) + 0.02
        ),
    )

    base = climatology_crps(y_train, y_test)
    before = evaluate(model, x_test, y_test)
    print(f"climatology crps {base:.4f}; untrained {before['crps']:.4f}")

    # two passes at the same input differ on purpose, in eval mode as well
    model.eval()
    with torch.no_grad():
        assert not torch.equal(model.draws(x_test[:2], 1), model.draws(x_test[:2], 1))
    model.train()

    losses = []
    for step in range(args.steps):
        rows = torch.randint(0, len(x_train), (args.batch,), generator=gen)
        samples = model.draws(x_train[rows], args.draws)
        loss = energy_score(samples, y_train[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if (step + 1) % 150 == 0:
            m = evaluate(model, x_test, y_test)
            print(
                f"step {step + 1:4d} energy score {sum(losses[-50:]) / 50:.4f} "
                + " ".join(f"{k} {v:.3f}" for k, v in m.items())
            )

    after = evaluate(model, x_test, y_test)
    print("final", {k: round(v, 4) for k, v in after.items()})
    assert evaluate(model, x_test, y_test) == after, "the evaluation must be repeatable"
    k = min(50, args.steps // 3)
    assert sum(losses[-k:]) < sum(losses[:k])
    if args.steps >= 600:
        assert after["crps"] < 0.7 * base
        assert 0.8 < after["coverage90"] < 0.98
        assert after["corr"] > 0.3 and after["spread"] > 0.1


if __name__ == "__main__":
    main()
