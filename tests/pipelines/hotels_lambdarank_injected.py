"""Ranking hotels for a search with LambdaRank: gradients are injected, not derived.

LambdaRank has no loss to differentiate: it defines the gradient of each score
("lambda") from all pairs of a search, weighted by how much swapping the pair
would change NDCG. So the training step calls scores.backward(gradient=lambdas).
What is logged is the mean NDCG of the batch (higher is better). Searches have
different numbers of hotels; they are padded and masked. Production parts: early
stopping on validation NDCG@5 with the best weights kept, resuming, a report.
"""
import argparse
import copy
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

GRADES = 5


@dataclass
class Config:
    epochs: int = 12
    batch: int = 24
    most_hotels: int = 16
    fewest_hotels: int = 6
    features: int = 10
    sigma: float = 1.0
    lr: float = 3e-3
    patience: int = 4
    preempt_after: int = 3
    seed: int = 101


def make_searches(cfg, n, rng):
    """x (n, L, F), grade (n, L), mask (n, L). Utility has an interaction of price and budget."""
    x = torch.randn(n, cfg.most_hotels, cfg.features, generator=rng)
    x[..., 0] = torch.randn(n, 1, generator=rng)  # the budget of the searcher
    size = torch.randint(cfg.fewest_hotels, cfg.most_hotels + 1, (n,), generator=rng)
    mask = torch.arange(cfg.most_hotels)[None] < size[:, None]
    utility = (
        x[..., 0] * x[..., 1]
        + x[..., 2]
        - 0.5 * x[..., 3].abs()
        + 0.4 * torch.randn(x.shape[:2], generator=rng)
    )
    edges = torch.tensor([-0.8, 0.1, 0.9, 1.8])
    return x, torch.bucketize(utility, edges) * mask, mask


def gains(grade):
    return 2.0**grade - 1.0


def ranks_of(scores, mask):
    """0 for the best; padding comes last."""
    order = scores.masked_fill(~mask, -torch.inf).argsort(
        dim=1, descending=True, stable=True
    )
    return order.argsort(dim=1)


def ndcg(scores, grade, mask, k=None):
    """Per search; searches whose hotels are all of grade 0 have no NDCG and give nan."""
    gain = gains(grade) * mask

    def dcg(rank):
        discount = 1.0 / torch.log2(rank + 2.0)
        if k is not None:
            discount = discount * (rank < k)
        return (gain * discount).sum(1)

    return dcg(ranks_of(scores, mask)) / dcg(ranks_of(gain, mask))


@torch.no_grad()
def lambdas_and_pairs(scores, grade, mask, sigma):
    """d(cost)/d(score), summed over pairs; also the pair weights, for the audit."""
    rank = ranks_of(scores, mask)
    gain, discount = gains(grade), 1.0 / torch.log2(rank + 2.0)
    ideal = (
        (gain * mask / torch.log2(ranks_of(gain * mask, mask) + 2.0))
        .sum(1)
        .clamp(min=1e-9)
    )
    better = (
        (grade[:, :, None] > grade[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    )
    delta = (
        (gain[:, :, None] - gain[:, None, :])
        * (discount[:, :, None] - discount[:, None, :])
    ).abs()
    weight = better * delta / ideal[:, None, None]
    push = (
        -sigma
        * torch.sigmoid(-sigma * (scores[:, :, None] - scores[:, None, :]))
        * weight
    )
    lambdas = push.sum(2) - push.sum(1)  # winners go up, losers go down
    return lambdas / len(scores), weight


class Scorer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(cfg.features, 48),
            nn.ReLU(),
            nn.Linear(48, 24),
            nn.ReLU(),
            nn.Linear(24, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def audit(model, batch, sigma):
    """With pair weights held fixed, the lambdas are the gradient of a weighted logistic loss."""
    x, grade, mask = batch
    scores = model(x).detach().requires_grad_(True)
    lambdas, weight = lambdas_and_pairs(scores, grade, mask, sigma)
    cost = (
        weight * F.softplus(-sigma * (scores[:, :, None] - scores[:, None, :]))
    ).sum() / len(scores)
    (wanted,) = torch.autograd.grad(cost, scores)
    torch.testing.assert_close(lambdas, wanted, rtol=1e-4, atol=1e-6)
    assert lambdas.sum(1).abs().max() < 1e-5  # each pair pushes both ways
    assert (lambdas[~mask] == 0).all()  # padding is never pushed


class Trainer:
    def __init__(self, cfg, train, valid):
        self.cfg, self.train_set, self.valid_set = cfg, train, valid
        torch.manual_seed(cfg.seed)
        self.model = Scorer(cfg)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.rng = torch.Generator().manual_seed(cfg.seed + 5)
        self.epoch, self.bad, self.best, self.best_weights = 0, 0, -1.0, None

    def train_epoch(self):
        self.model.train()
        total, count = 0.0, 0
        for rows in torch.randperm(len(self.train_set[0]), generator=self.rng).split(
            self.cfg.batch
        ):
            x, grade, mask = (t[rows] for t in self.train_set)
            scores = self.model(x)
            lambdas, _ = lambdas_and_pairs(scores, grade, mask, self.cfg.sigma)
            self.optimizer.zero_grad(set_to_none=True)
            scores.backward(gradient=lambdas)
            self.optimizer.step()
            quality = ndcg(scores.detach(), grade, mask)
            total += quality.nansum().item()
            count += quality.isfinite().sum().item()
        return total / count

    @torch.no_grad()
    def score(self, data, k=5):
        self.model.eval()
        return ndcg(self.model(data[0]), data[1], data[2], k).nanmean().item()

    def fit(self, until):
        while self.epoch < until and self.bad < self.cfg.patience:
            train = self.train_epoch()
            valid = self.score(self.valid_set)
            self.epoch += 1
            if valid > self.best:
                self.best, self.bad, self.best_weights = (
                    valid,
                    0,
                    copy.deepcopy(self.model.state_dict()),
                )
            else:
                self.bad += 1
            print(
                f"epoch {self.epoch:2d} train NDCG {train:.4f} valid NDCG@5 {valid:.4f}{' *' if self.bad == 0 else ''}"
            )

    KEPT = ("epoch", "bad", "best", "best_weights")

    def save(self, path):
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "rng": self.rng.get_state(),
                **{k: getattr(self, k) for k in self.KEPT},
            },
            path,
        )

    def resume(self, path):
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rng.set_state(state["rng"])
        for k in self.KEPT:
            setattr(self, k, state[k])
        return self


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    rng = torch.Generator().manual_seed(cfg.seed)
    train, valid, test = (make_searches(cfg, n, rng) for n in (900, 250, 250))

    trainer = Trainer(cfg, train, valid)
    audit(trainer.model, tuple(t[:20] for t in train), cfg.sigma)
    start = trainer.score(test)
    trainer.fit(min(cfg.preempt_after, cfg.epochs))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "hotels.pt")
        trainer.save(path)
        resumed = Trainer(cfg, train, valid).resume(path)
    assert resumed.score(test) == trainer.score(test) and resumed.epoch == trainer.epoch
    print("preempted; resumed from the checkpoint")
    resumed.fit(cfg.epochs)
    if resumed.best_weights is not None:
        resumed.model.load_state_dict(resumed.best_weights)
        assert abs(resumed.score(valid) - resumed.best) < 1e-6
    end = resumed.score(test)
    chance = (
        ndcg(torch.rand(test[1].shape, generator=rng), test[1], test[2], 5)
        .nanmean()
        .item()
    )
    print(f"test NDCG@5 {start:.4f} -> {end:.4f} (random order {chance:.4f})")
    if cfg.epochs >= Config.epochs:
        assert end > start + 0.1 and end > 0.85


if __name__ == "__main__":
    main()
