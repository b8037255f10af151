"""Loan default model: tabular net with categorical embeddings, early stopping on accuracy."""
import argparse
import os
import tempfile

import numpy as np
import torch
from torch import nn


def loan_table(n, seed):
    r = np.random.default_rng(seed)
    income = r.lognormal(10.3, 0.5, n)
    amount = r.lognormal(9.2, 0.7, n)
    age = r.integers(19, 75, n)
    late = r.poisson(0.8, n)
    region = r.integers(0, 12, n)
    purpose = r.integers(0, 7, n)
    region_effect = np.random.default_rng(0).normal(0, 0.6, 12)
    score = (
        1.1 * np.log(amount / income)
        + 0.9 * late
        - 0.02 * (age - 40)
        + region_effect[region]
        + 0.5 * (purpose == 3)
        - 0.4 * (purpose == 5)
    )
    y = (score + r.logistic(0, 0.5, n) > np.median(score)).astype(np.float32)
    numeric = np.stack([np.log(income), np.log(amount), age, late], 1).astype(
        np.float32
    )
    category = np.stack([region, purpose], 1)
    return torch.from_numpy(numeric), torch.from_numpy(category), torch.from_numpy(y)


class TabularNet(nn.Module):
    def __init__(self, cards, n_numeric, width=64):
        super().__init__()
        self.embeddings = nn.ModuleList(
            [nn.Embedding(c, min(8, (c + 1) // 2)) for c in cards]
        )
        total = n_numeric + sum(e.embedding_dim for e in self.embeddings)
        self.layers = nn.Sequential(
            nn.Linear(total, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, 1),
        )

    def forward(self, numeric, category):
        parts = [e(category[:, i]) for i, e in enumerate(self.embeddings)]
        return self.layers(torch.cat([numeric] + parts, dim=1))


class EarlyStopping:
    """Keeps the best weights on disk, stops after `patience` checks without a better score."""

    def __init__(self, path, patience):
        self.path, self.patience = path, patience
        self.best, self.bad = -1.0, 0

    def __call__(self, score, model, step):
        if score > self.best:
            self.best, self.bad = score, 0
            torch.save(
                {"model": model.state_dict(), "score": score, "step": step}, self.path
            )
        else:
            self.bad += 1
        return self.bad >= self.patience


def accuracy(logits, target, args):
    if args.fixed:
        logits = logits.squeeze(1)
    predicted = (logits > 0).float()
    return (predicted == target).float().mean().item()


@torch.no_grad()
def validate(model, data, args):
    model.eval()
    numeric, category, y = data
    logits = model(numeric, category)
    loss = nn.functional.binary_cross_entropy_with_logits(logits.squeeze(1), y).item()
    return loss, accuracy(logits, y, args)


def train(model, train_data, valid_data, stopper, args):
    numeric, category, y = train_data
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.BCEWithLogitsLoss()
    rng = torch.Generator().manual_seed(args.seed)
    queue = []
    for step in range(args.steps):
        if not queue:
            queue = list(torch.randperm(len(y), generator=rng).split(args.batch_size))
        rows = queue.pop()
        model.train()
        logits = model(numeric[rows], category[rows])
        loss = criterion(logits, y[rows].unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % args.check_every == 0:
            val_loss, val_acc = validate(model, valid_data, args)
            print(
                f"step {step + 1:4d}  loss {loss.item():.4f}  val loss {val_loss:.4f}  val acc {val_acc:.4f}"
            )
            if stopper(val_acc, model, step + 1):
                print("no better score for a while, stopping")
                break


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch-size", type=int, default=128)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--check-every", type=int, default=15)
    ap.add_argument("--patience", type=int, default=20)
    ap.add_argument("--seed", type=int, default=6)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    train_data = loan_table(8000, 1)
    valid_data = loan_table(1000, 2)
    test_data = loan_table(2000, 3)
    mean, std = train_data[0].mean(0), train_data[0].std(0)
    train_data, valid_data, test_data = [
        ((a - mean) / std, b, c) for a, b, c in (train_data, valid_data, test_data)
    ]

    model = TabularNet(cards=[12, 7], n_numeric=4)
    with tempfile.TemporaryDirectory() as folder:
        stopper = EarlyStopping(os.path.join(folder, "best.pt"), args.patience)
        train(model, train_data, valid_data, stopper, args)
        if os.path.exists(stopper.path):
            best = torch.load(stopper.path)
            model.load_state_dict(best["model"])
            print(
                f"best weights from step {best['step']} (val acc {best['score']:.4f})"
            )
    test_loss, _ = validate(model, test_data, args)
    print(f"test loss {test_loss:.4f}")

    if args.prove:
        with torch.no_grad():
            numeric, category, y = valid_data
            logits = model(numeric, category)
        row_by_row = sum(
            int((a.item() > 0) == (b.item() > 0.5)) for a, b in zip(logits, y)
        ) / len(y)
        reported = accuracy(logits, y, args)
        print(f"accuracy reported {reported:.4f}, counted row by row {row_by_row:.4f}")
        print("fault shows:", "yes" if abs(reported - row_by_row) > 1e-4 else "no")


if __name__ == "__main__":
    main()
