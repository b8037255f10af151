"""Retrieval of shoe prints by 24-bit codes: HashNet with a continuation on the binarisation.

The network is trained through tanh(beta * z) while beta grows stage by stage, as sign() has no gradient; each
stage has its own learning rate and a fresh optimizer.  Pairs are weighted because dissimilar ones are far more
frequent.  Forward under bfloat16 autocast, pair likelihood in float32.  Validation never uses the training
output but real sign() codes and Hamming distances; the index is exported as packed bytes.
"""
import argparse
import json
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


@dataclass(frozen=True)
class Settings:
    patterns: int = 16
    per_pattern: int = 40
    queries_per_pattern: int = 6
    side: int = 16
    bits: int = 24
    classes_per_batch: int = 8
    prints_per_class: int = 6
    stages: tuple = (1.0, 1.6, 2.4, 3.5)
    lr: float = 2e-3
    lr_factor: float = 0.6
    seed: int = 14


class Shoeprints(Dataset):
    """A sole pattern is a sum of plane waves; a print is shifted, faded and partly missing."""

    def __init__(self, cfg, per_pattern, seed):
        bank = np.random.default_rng(99)
        waves = bank.uniform(-1.6, 1.6, (cfg.patterns, 3, 2))
        phases = bank.uniform(0, 2 * np.pi, (cfg.patterns, 3))
        rng = np.random.default_rng(seed)
        yy, xx = np.meshgrid(np.arange(cfg.side), np.arange(cfg.side), indexing="ij")
        self.labels = np.repeat(np.arange(cfg.patterns), per_pattern)
        pictures = []
        for c in self.labels:
            dy, dx = rng.integers(-1, 2, 2)
            pic = sum(
                np.cos(k[0] * (yy + dy) + k[1] * (xx + dx) + p)
                for k, p in zip(waves[c], phases[c])
            )
            pic = pic * rng.uniform(0.6, 1.2) + 0.8 * rng.standard_normal(pic.shape)
            r, s = rng.integers(0, cfg.side - 5, 2)
            pic[r : r + 5, s : s + 5] = 0
            pictures.append(pic)
        self.x = torch.from_numpy(np.stack(pictures).astype(np.float32)).unsqueeze(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.x[i], int(self.labels[i])


class ClassesTimesPrints(Sampler):
    """P classes with K prints each per batch: random batches would have almost no similar pair."""

    def __init__(self, labels, p, k, batches, seed):
        self.labels, self.p, self.k, self.batches = np.asarray(labels), p, k, batches
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = self.rng.choice(np.unique(self.labels), self.p, replace=False)
            yield np.concatenate(
                [
                    self.rng.choice(
                        np.flatnonzero(self.labels == c), self.k, replace=False
                    )
                    for c in chosen
                ]
            ).tolist()


class HashNet(nn.Module):
    def __init__(self, bits):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.hash = nn.Linear(32 * 16, bits)

    def forward(self, x):
        return self.hash(self.conv(x))


def pair_loss(h, y):
    """Weighted maximum likelihood over all unordered pairs of the batch, logit = half the inner product."""
    similar = (y.unsqueeze(0) == y.unsqueeze(1)).float()
    upper = torch.triu(torch.ones_like(similar), diagonal=1).bool()
    logit, s = (0.5 * (h @ h.T))[upper], similar[upper]
    weight = torch.where(s > 0, len(s) / s.sum(), len(s) / (1 - s).sum())
    # -log p(s | logit) = softplus(logit) - s * logit
    return (weight * (F.softplus(logit) - s * logit)).mean() / 2


@torch.no_grad()
def codes_of(model, data):
    model.eval()
    z = torch.cat([model(x) for x, _ in DataLoader(data, 200)])
    model.train()
    return torch.where(z >= 0, 1, -1).to(
        torch.int8
    )  # zero counts as +1: no third value


def mean_average_precision(query, query_y, base, base_y):
    distance = (base.shape[1] - query.float() @ base.float().T) / 2
    order = distance.argsort(dim=1, stable=True)
    hit = (
        torch.from_numpy(base_y)[order] == torch.from_numpy(query_y).unsqueeze(1)
    ).float()
    precision = hit.cumsum(1) / torch.arange(1, hit.shape[1] + 1)
    return ((precision * hit).sum(1) / hit.sum(1)).mean().item()


def export_index(codes, labels):
    packed = np.packbits((codes.numpy() > 0).astype(np.uint8), axis=1)
    return {"codes": packed, "labels": labels, "bits": codes.shape[1]}


def hamming_packed(index, packed_queries):
    xor = np.bitwise_xor(packed_queries[:, None], index["codes"][None])
    return np.unpackbits(xor, axis=2).sum(2)


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument(
        "--steps", type=int, default=200, help="in total, split evenly over the stages"
    )
    args = ap.parse_args()
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    database, queries = Shoeprints(cfg, cfg.per_pattern, 1), Shoeprints(
        cfg, cfg.queries_per_pattern, 2
    )
    model = HashNet(cfg.bits)

    def score():
        return mean_average_precision(
            codes_of(model, queries),
            queries.labels,
            codes_of(model, database),
            database.labels,
        )

    journal, start = [], score()
    per_stage = max(1, args.steps // len(cfg.stages))
    for stage, beta in enumerate(cfg.stages):
        # A new optimizer for each stage: the loss surface has changed and old moments would mislead.
        opt = torch.optim.Adam(model.parameters(), lr=cfg.lr * cfg.lr_factor**stage)
        sampler = ClassesTimesPrints(
            database.labels,
            cfg.classes_per_batch,
            cfg.prints_per_class,
            per_stage,
            cfg.seed + stage,
        )
        losses = []
        for x, y in DataLoader(database, batch_sampler=sampler):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = model(x)
            assert z.dtype == torch.bfloat16
            loss = pair_loss(torch.tanh(beta * z.float()), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            losses.append(loss.item())
        with torch.no_grad():
            z = model(database.x[::7])
            gap = (
                (torch.tanh(beta * z) - torch.where(z >= 0, 1.0, -1.0))
                .abs()
                .mean()
                .item()
            )
        journal.append(
            {
                "stage": stage,
                "beta": beta,
                "first": losses[0],
                "last": float(np.mean(losses[-10:])),
                "binarisation_gap": gap,
                "map": score(),
            }
        )
        print(json.dumps({k: round(v, 4) for k, v in journal[-1].items()}))

    base, query = codes_of(model, database), codes_of(model, queries)
    index = export_index(base, database.labels)
    packed = np.packbits((query.numpy() > 0).astype(np.uint8), axis=1)
    dense = ((cfg.bits - query.float() @ base.float().T) / 2).numpy()
    assert (
        hamming_packed(index, packed) == dense
    ).all(), "the exported bytes give the same distances"
    balance = (base > 0).float().mean(0)
    print(
        f"mAP {start:.3f} -> {journal[-1]['map']:.3f}; index {index['codes'].nbytes} bytes; "
        f"bits switched on {balance.min():.2f}..{balance.max():.2f}"
    )
    if args.steps >= 150:
        assert journal[0]["last"] < journal[0]["first"] and journal[-1]["map"] > max(
            0.6, start + 0.2
        )
        assert journal[-1]["binarisation_gap"] < journal[0]["binarisation_gap"]


if __name__ == "__main__":
    main()
