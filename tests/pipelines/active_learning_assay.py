"""Active learning on a made-up binding assay.

Start with a few measured compounds, train from scratch, choose the next batch to
measure by BALD with Monte-Carlo dropout, repeat. Random choice is run as a baseline.
"""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_library(n, bits, seed):
    """Fingerprints from a few scaffolds; activity depends on pairs of bits."""
    rng = np.random.default_rng(seed)
    scaffolds = rng.random((12, bits)) ** 3
    which = rng.integers(0, 12, n)
    fp = (rng.random((n, bits)) < scaffolds[which]).astype(np.float32)
    w1 = rng.normal(0, 1, (bits, 6)) * (rng.random((bits, 6)) < 0.25)
    latent = np.tanh(fp @ w1 / 2) @ rng.normal(0, 1.5, 6) + rng.normal(0, 0.3, n)
    active = (latent > np.quantile(latent, 0.7)).astype(np.float32)
    return torch.from_numpy(fp), torch.from_numpy(active)


def make_model(bits):
    return nn.Sequential(
        nn.Linear(bits, 96),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(96, 48),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(48, 1),
    )


def train_from_scratch(x, y, steps, batch_size, seed):
    torch.manual_seed(seed)
    model = make_model(x.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    model.train()
    done, last = 0, []
    while done < steps:
        for idx in torch.randperm(len(x)).split(batch_size):
            optimizer.zero_grad()
            loss = F.binary_cross_entropy_with_logits(model(x[idx]).squeeze(1), y[idx])
            loss.backward()
            optimizer.step()
            last.append(loss.item())
            done += 1
            if done == steps:
                break
    return model, float(np.mean(last[-10:]))


def predict(model, x):
    model.eval()
    with torch.no_grad():
        return torch.sigmoid(model(x).squeeze(1))


def mc_dropout(model, x, n_samples):
    """Stochastic passes with the dropout layers active."""
    model.eval()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()
    with torch.no_grad():
        samples = torch.stack(
            [torch.sigmoid(model(x).squeeze(1)) for _ in range(n_samples)]
        )
    model.eval()
    return samples


def binary_entropy(p):
    p = p.clamp(1e-6, 1 - 1e-6)
    return -(p * p.log() + (1 - p) * (1 - p).log())


def bald(samples):
    return binary_entropy(samples.mean(0)) - binary_entropy(samples).mean(0)


def auroc(score, label):
    order = score.argsort()
    ranks = torch.empty_like(score)
    ranks[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = label == 1
    n_pos, n_neg = pos.sum(), (~pos).sum()
    return ((ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)).item()


def campaign(strategy, pool_x, pool_y, test_x, test_y, args):
    gen = torch.Generator().manual_seed(args.seed)
    labelled = torch.zeros(len(pool_x), dtype=torch.bool)
    labelled[torch.randperm(len(pool_x), generator=gen)[: args.start]] = True
    curve = []
    for r in range(args.rounds):
        model, loss = train_from_scratch(
            pool_x[labelled], pool_y[labelled], args.steps, 32, seed=args.seed + r
        )
        score = auroc(predict(model, test_x), test_y)
        curve.append(score)
        print(
            f"{strategy:>6} round {r}  measured {int(labelled.sum()):4d}  actives {int(pool_y[labelled].sum()):3d}  "
            f"loss {loss:.3f}  test AUROC {score:.3f}"
        )
        if r == args.rounds - 1:
            break
        candidates = torch.nonzero(~labelled).squeeze(1)
        if strategy == "bald":
            value = bald(mc_dropout(model, pool_x[candidates], 20))
            chosen = candidates[value.topk(args.acquire).indices]
        else:
            chosen = candidates[
                torch.randperm(len(candidates), generator=gen)[: args.acquire]
            ]
        labelled[chosen] = True
    return curve


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=50, help="optimizer steps per round")
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--start", type=int, default=80)
    p.add_argument("--acquire", type=int, default=60)
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    fp, active = make_library(2600, 128, args.seed)
    pool_x, pool_y, test_x, test_y = fp[:2000], active[:2000], fp[2000:], active[2000:]
    curves = {
        s: campaign(s, pool_x, pool_y, test_x, test_y, args) for s in ("random", "bald")
    }
    for name, curve in curves.items():
        print(f"{name:>6} area under the learning curve {np.mean(curve):.4f}")
