# Churn model for the subscriptions team.
# Mixed numeric/categorical table -> probability that the customer leaves within 30 days.
import argparse
import logging

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("churn")

PLANS, REGIONS = 5, 12


def make_table(n, seed):
    rng = np.random.default_rng(seed)
    tenure = rng.exponential(18, n)
    fee = rng.normal(30, 8, n).clip(5)
    calls = rng.poisson(1.2, n)
    usage = rng.gamma(2.0, 2.0, n)
    late = rng.binomial(6, 0.1, n)
    plan = rng.integers(0, PLANS, n)
    region = rng.integers(0, REGIONS, n)
    logit = (
        -2.6
        - 0.05 * tenure
        + 0.05 * (fee - 30)
        + 0.7 * calls
        - 0.15 * usage
        + 0.6 * late
        + np.array([0.8, 0.0, -0.4, 0.2, -1.0])[plan]
        + 0.3 * np.sin(region)
    )
    churn = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype("float32")
    numeric = np.stack([np.log1p(tenure), fee, calls, np.log1p(usage), late], 1).astype(
        "float32"
    )
    cats = np.stack([plan, region], 1)
    return numeric, cats, churn


class ChurnNet(nn.Module):
    def __init__(self, n_numeric):
        super().__init__()
        self.plan = nn.Embedding(PLANS, 4)
        self.region = nn.Embedding(REGIONS, 6)
        self.body = nn.Sequential(
            nn.Linear(n_numeric + 10, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Linear(64, 32),
            nn.ReLU(),
        )
        self.out = nn.Linear(32, 1)
        self.final = nn.Sigmoid()

    def forward(self, numeric, cats):
        z = torch.cat([numeric, self.plan(cats[:, 0]), self.region(cats[:, 1])], dim=1)
        return self.final(self.out(self.body(z))).squeeze(1)


def auc(scores, target):
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(1, len(scores) + 1)
    pos = target == 1
    n_pos, n_neg = pos.sum(), (~pos).sum()
    return (ranks[pos].sum() - n_pos * (n_pos + 1) / 2) / max(n_pos * n_neg, 1)


def run_epoch(model, loader, criterion, optimizer, budget):
    model.train()
    total = n = steps = 0
    for numeric, cats, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(numeric, cats), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(target)
        n += len(target)
        steps += 1
        if steps >= budget:
            break
    return total / n, steps


def predict(model, loader):
    model.eval()
    scores, targets = [], []
    with torch.no_grad():
        for numeric, cats, target in loader:
            scores.append(model(numeric, cats))
            targets.append(target)
    return torch.cat(scores), torch.cat(targets)


def prove(model, valid_loader):
    scores, target = predict(model, valid_loader)
    implied = torch.sigmoid(scores)  # the probability that the loss works with
    log.info("probability seen by the loss: %.3f to %.3f", implied.min(), implied.max())
    squeezed = implied.min().item() >= 0.5 and implied.max().item() <= 0.7311
    log.info("fault shows: %s", "yes" if squeezed else "no")


def make_sampler(churn, args):
    # leavers are rare, bring them to about 40 %
    rate = churn.mean()
    weights = np.where(churn == 1, 0.4 / rate, 0.6 / (1 - rate))
    sampler = WeightedRandomSampler(
        torch.tensor(weights),
        num_samples=len(weights),
        generator=torch.Generator().manual_seed(args.seed),
    )
    return sampler


def main(args):
    torch.manual_seed(args.seed)
    numeric, cats, churn = make_table(9000, args.seed)
    train, valid = slice(0, 7200), slice(7200, None)
    mean, std = numeric[train].mean(0), numeric[train].std(0)
    numeric = (numeric - mean) / std

    def dataset(part):
        return TensorDataset(
            torch.tensor(numeric[part]),
            torch.tensor(cats[part]),
            torch.tensor(churn[part]),
        )

    sampler = make_sampler(churn[train], args)
    train_loader = DataLoader(
        dataset(train), batch_size=128, sampler=sampler, drop_last=True
    )
    valid_loader = DataLoader(dataset(valid), batch_size=600)
    log.info("rows %d, churn rate %.3f", len(churn), churn[train].mean())

    model = ChurnNet(numeric.shape[1])
    if args.fixed:
        model.final = nn.Identity()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1
    )

    done, epoch, best = 0, 0, 0.0
    while done < args.steps:
        train_loss, steps = run_epoch(
            model, train_loader, criterion, optimizer, args.steps - done
        )
        done += steps
        epoch += 1
        scores, target = predict(model, valid_loader)
        valid_loss = criterion(scores, target).item()
        area = auc(scores.numpy(), target.numpy())
        plateau.step(valid_loss)
        best = max(best, area)
        log.info(
            "epoch %d (%d steps) train %.4f valid %.4f auc %.4f",
            epoch,
            done,
            train_loss,
            valid_loss,
            area,
        )
    log.info("best auc %.4f", best)

    if args.prove:
        prove(model, valid_loader)


if __name__ == "__main__":
    p = argparse.ArgumentParser(description="churn model")
    p.add_argument("--steps", type=int, default=280)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=2023)
    p.add_argument("--fixed", action="store_true")
    p.add_argument("--prove", action="store_true")
    main(p.parse_args())
