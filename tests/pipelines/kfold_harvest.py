"""Predicts the yield of fields by five-fold cross-validation. Each fold has a model,
an optimizer and a schedule of its own, all in one process; inputs are standardised
by the training part. The five models predict the test fields together at the end.

    python kfold_harvest.py --steps 400
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

CROPS = 5


class YieldNet(nn.Module):
    def __init__(self, numeric=7, width=32):
        super().__init__()
        self.crop = nn.Embedding(CROPS, 4)
        self.trunk = nn.Sequential(
            nn.Linear(numeric + 4, width),
            nn.SELU(),
            nn.AlphaDropout(0.05),
            nn.Linear(width, width),
            nn.SELU(),
            nn.Linear(width, 1),
        )
        self.register_buffer("mean", torch.zeros(numeric))
        self.register_buffer("std", torch.ones(numeric))

    def standardise_by(self, numbers):
        self.mean.copy_(numbers.mean(0))
        self.std.copy_(numbers.std(0))

    def forward(self, numbers, crop):
        numbers = (numbers - self.mean) / self.std
        return self.trunk(torch.cat([numbers, self.crop(crop)], dim=1)).squeeze(1)


def fields(count, seed):
    rng = np.random.default_rng(seed)
    rain = rng.gamma(6.0, 80.0, count)
    warmth = rng.normal(14.0, 3.0, count)
    soil = rng.uniform(0, 1, (count, 5))
    crop = rng.integers(CROPS, size=count)
    best = np.array([12.0, 14.0, 16.0, 18.0, 13.0])[crop]
    tons = 6 - 0.1 * (warmth - best) ** 2 + 0.003 * np.minimum(rain, 600)
    tons += 1.5 * soil[:, 0] * soil[:, 1] + rng.normal(0, 0.4, count)
    numbers = np.column_stack([rain, warmth, soil]).astype(np.float32)
    return TensorDataset(
        torch.from_numpy(numbers),
        torch.from_numpy(crop),
        torch.from_numpy(tons.astype(np.float32)),
    )


def split(count, folds, seed=0):
    """(training, validation) indices of each fold."""
    parts = np.array_split(np.random.default_rng(seed).permutation(count), folds)
    for i, held_out in enumerate(parts):
        rest = np.concatenate(parts[:i] + parts[i + 1 :])
        yield rest.tolist(), held_out.tolist()


@torch.no_grad()
def predict(model, data):
    model.eval()
    loader = DataLoader(data, batch_size=128)
    return torch.cat([model(numbers, crop) for numbers, crop, _ in loader])


def fit_fold(fold, training, args, steps):
    torch.manual_seed(args.seed + fold)
    model = YieldNet()
    model.standardise_by(training.dataset.tensors[0][training.indices])
    optimizer = torch.optim.NAdam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=steps
    )
    loader = DataLoader(training, batch_size=32, shuffle=True, drop_last=True)
    criterion = nn.SmoothL1Loss()
    step = 0
    while step < steps:
        model.train()
        for numbers, crop, tons in loader:
            loss = criterion(model(numbers, crop), tons)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step == steps:
                break
    print(f"fold {fold} step {step} loss {loss.item():.6f}", flush=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400, help="of all folds together")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data, test = fields(600, seed=1), fields(200, seed=2)
    steps = max(1, args.steps // args.folds)

    out_of_fold = torch.zeros(len(data))
    models = []
    for fold, (rest, held_out) in enumerate(split(len(data), args.folds)):
        model = fit_fold(fold, Subset(data, rest), args, steps)
        guess = predict(model, Subset(data, held_out))
        out_of_fold[held_out] = guess
        error = (guess - data.tensors[2][held_out]).square().mean().sqrt()
        print(f"fold {fold} RMSE {error.item():.4f}", flush=True)
        models.append(model)

    overall = (out_of_fold - data.tensors[2]).square().mean().sqrt()
    together = torch.stack([predict(model, test) for model in models]).mean(0)
    final = (together - test.tensors[2]).square().mean().sqrt()
    print(f"RMSE out of fold {overall.item():.4f}, ensemble {final.item():.4f}")


if __name__ == "__main__":
    main()
