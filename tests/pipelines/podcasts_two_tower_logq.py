"""Two-tower retrieval of podcasts with in-batch negatives and sampling correction.

The other listeners' episodes in a batch are the negatives, so popular episodes
show up as negatives too often. Following Yi et al. (2019), a streaming estimator
learns how many batches pass between two appearances of an episode; log of the
chance to appear is subtracted from the logits, in training only. Episodes that
occur several times in a batch are merged into one candidate. The data is an
endless stream from two workers with their own seeds; there are no epochs.
Serving: item vectors are exported to an index, checked after reloading.
"""
import argparse
import itertools
import math
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


@dataclass
class Config:
    episodes: int = 300
    traits: int = 6
    user_features: int = 12
    dim: int = 16
    batch: int = 128
    steps: int = 500
    lr_dense: float = 3e-3
    lr_tables: float = 0.1
    frequency_rate: float = 0.05
    workers: int = 2
    top_k: int = 10
    seed: int = 91


class World:
    """Ground truth: p(episode | user) is popularity times exp(affinity)."""

    def __init__(self, cfg):
        rng = torch.Generator().manual_seed(cfg.seed)
        self.cfg = cfg
        self.traits = torch.randn(cfg.episodes, cfg.traits, generator=rng)
        self.taste = torch.randn(
            cfg.user_features, cfg.traits, generator=rng
        ) / math.sqrt(cfg.user_features)
        ranks = torch.randperm(cfg.episodes, generator=rng) + 1
        self.log_popularity = -0.9 * ranks.log()
        self.described = self.traits + 0.3 * torch.randn(
            self.traits.shape, generator=rng
        )  # what the shop knows

    def log_probs(self, users):
        return (
            self.log_popularity + 1.2 * users @ self.taste @ self.traits.T
        ).log_softmax(-1)

    def draw(self, n, rng):
        users = torch.randn(n, self.cfg.user_features, generator=rng)
        plays = torch.multinomial(
            self.log_probs(users).exp(), 1, generator=rng
        ).squeeze(1)
        return users, plays


class PlayStream(IterableDataset):
    """Yields whole batches, for ever. Each worker draws its own stream."""

    def __init__(self, world):
        self.world = world

    def __iter__(self):
        info = get_worker_info()
        worker = info.id if info else 0
        rng = torch.Generator().manual_seed(self.world.cfg.seed + 1000 * (worker + 1))
        while True:
            yield self.world.draw(self.world.cfg.batch, rng)


class AppearanceEstimator:
    """Batches between two appearances of an episode, as an exponential average."""

    def __init__(self, cfg):
        self.rate = cfg.frequency_rate
        self.last_seen = torch.zeros(cfg.episodes)
        self.interval = torch.full((cfg.episodes,), 10.0)

    def update(self, unique_items, step):
        gap = step - self.last_seen[unique_items]
        self.interval[unique_items] += self.rate * (gap - self.interval[unique_items])
        self.last_seen[unique_items] = step

    def log_chance(self, items):
        return -self.interval[items].clamp(min=1.0).log()


class TwoTower(nn.Module):
    def __init__(self, cfg, described):
        super().__init__()
        self.register_buffer("described", described)
        self.user = nn.Sequential(
            nn.Linear(cfg.user_features, 48), nn.ReLU(), nn.Linear(48, cfg.dim)
        )
        self.content = nn.Linear(cfg.traits, cfg.dim)
        self.item_id = nn.Embedding(cfg.episodes, cfg.dim)
        self.item_bias = nn.Embedding(cfg.episodes, 1)
        nn.init.normal_(self.item_id.weight, std=0.02)
        nn.init.zeros_(self.item_bias.weight)

    def user_vectors(self, users):
        u = self.user(users)
        return torch.cat(
            [u, torch.ones_like(u[:, :1])], dim=1
        )  # the last one meets the bias

    def item_vectors(self, items):
        v = self.content(self.described[items]) + self.item_id(items)
        return torch.cat([v, self.item_bias(items)], dim=1)


def in_batch_loss(model, estimator, users, plays, step):
    candidates, target = plays.unique(return_inverse=True)
    estimator.update(candidates, step)
    logits = model.user_vectors(users) @ model.item_vectors(candidates).T
    return F.cross_entropy(logits - estimator.log_chance(candidates), target)


@torch.no_grad()
def evaluate(model, cfg, users, plays):
    """Over the whole catalogue, without any correction."""
    model.eval()
    scores = (
        model.user_vectors(users) @ model.item_vectors(torch.arange(cfg.episodes)).T
    )
    model.train()
    return F.cross_entropy(scores, plays).item(), recall(scores, plays, cfg.top_k)


def recall(scores, plays, k):
    return (
        (scores.topk(k, dim=1).indices == plays[:, None]).any(1).float().mean().item()
    )


@torch.no_grad()
def export_index(model, cfg, users, folder):
    model.eval()
    path = os.path.join(folder, "index.pt")
    torch.save(
        {"vectors": model.item_vectors(torch.arange(cfg.episodes)), "dim": cfg.dim + 1},
        path,
    )
    index = torch.load(path, weights_only=True)
    assert index["vectors"].shape == (cfg.episodes, index["dim"])
    live = model.user_vectors(users) @ model.item_vectors(torch.arange(cfg.episodes)).T
    torch.testing.assert_close(model.user_vectors(users) @ index["vectors"].T, live)


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Config.steps)
    cfg = Config(steps=ap.parse_args().steps)
    torch.manual_seed(cfg.seed)
    world = World(cfg)
    test_users, test_plays = world.draw(
        4000, torch.Generator().manual_seed(cfg.seed + 1)
    )

    model = TwoTower(cfg, world.described)
    estimator = AppearanceEstimator(cfg)
    tables = [model.item_id.weight, model.item_bias.weight]
    dense = [*model.user.parameters(), *model.content.parameters()]
    assert len(tables) + len(dense) == len(list(model.parameters()))
    optimizers = [
        torch.optim.Adam(dense, lr=cfg.lr_dense),
        torch.optim.Adagrad(tables, lr=cfg.lr_tables),
    ]

    start_nll, start_recall = evaluate(model, cfg, test_users, test_plays)
    # Batches are made by the dataset, hence batch_size=None.
    loader = DataLoader(
        PlayStream(world), batch_size=None, num_workers=cfg.workers, prefetch_factor=4
    )
    losses = []
    for step, (users, plays) in enumerate(itertools.islice(loader, cfg.steps), start=1):
        loss = in_batch_loss(model, estimator, users, plays, step)
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
        if step % 100 == 0 or step == cfg.steps:
            nll, rec = evaluate(model, cfg, test_users, test_plays)
            print(
                f"step {step:4d} in-batch loss {sum(losses[-50:]) / len(losses[-50:]):.3f} "
                f"catalogue nll {nll:.3f} recall@{cfg.top_k} {rec:.3f}"
            )

    end_nll, end_recall = evaluate(model, cfg, test_users, test_plays)
    popular = recall(
        world.log_popularity.expand(len(test_plays), -1), test_plays, cfg.top_k
    )
    ideal = recall(world.log_probs(test_users), test_plays, cfg.top_k)
    print(
        f"recall {start_recall:.3f} -> {end_recall:.3f}; most popular {popular:.3f}, ideal {ideal:.3f}; "
        f"nll {start_nll:.3f} -> {end_nll:.3f}"
    )
    with tempfile.TemporaryDirectory() as folder:
        export_index(model, cfg, test_users[:16], folder)
    if cfg.steps >= Config.steps:
        chance = world.log_probs(
            torch.randn(
                4000, cfg.user_features, generator=torch.Generator().manual_seed(2)
            )
        )
        appears = 1 - (1 - chance.exp().mean(0)) ** cfg.batch
        common = appears > 0.2
        ratio = (estimator.log_chance(torch.arange(cfg.episodes)).exp() / appears)[
            common
        ]
        assert (
            0.7 < ratio.mean() < 1.4
        ), "the estimator must find the chance of appearing"
        assert end_recall > popular + 0.05 and end_nll < start_nll - 0.5


if __name__ == "__main__":
    main()
