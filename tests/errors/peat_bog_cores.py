"""Age of layers in a peat bog, from the pollen that a core contains.

A layer is a histogram of pollen counts over twenty taxa.  A residual network returns the
age in thousands of years; a quantile loss gives the range as well.
"""

import argparse
import math
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

TAXA = 20
QUANTILES = (0.1, 0.5, 0.9)

DEFAULTS = dict(epochs=14, batch=50, lr=0.08, momentum=0.9, width=64, layers=1200)


def drill(count, seed, landscape):
    """Pollen of `count` layers; the landscape holds when each taxon bloomed."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 11, count)
    centre, width, height = landscape
    bloom = height * np.exp(-(((age[:, None] - centre) / width) ** 2)) + 0.05
    wet = rng.gamma(3.0, 1 / 3.0, (count, 1))
    tilt = np.linspace(-1, 1, TAXA)
    bloom = bloom * np.exp(0.4 * (wet - 1) * tilt)
    share = bloom / bloom.sum(1, keepdims=True)
    grains = rng.integers(150, 500, count)
    counts = np.stack([rng.multinomial(n, p) for n, p in zip(grains, share)])
    return np.sqrt(counts / grains[:, None]).astype("f4"), age.astype("f4")


def make_landscape(seed):
    rng = np.random.default_rng(seed + 9000)
    return (
        rng.uniform(-1, 12, TAXA),
        rng.uniform(0.8, 3.0, TAXA),
        rng.uniform(0.3, 1.5, TAXA),
    )


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bn = nn.BatchNorm1d(width)
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, h):
        return h + self.fc2(F.elu(self.fc1(self.bn(h))))


class AgeModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Linear(TAXA, width)
        self.res1 = Residual(width)
        self.res2 = Residual(width)
        self.leave = nn.Linear(width, len(QUANTILES))

    def forward(self, pollen):
        h = self.res2(self.res1(self.enter(pollen)))
        first, rest = self.leave(h).split([1, len(QUANTILES) - 1], dim=1)
        return torch.cat([first, first + F.softplus(rest).cumsum(1)], 1)


def pinball(guess, age):
    error = age[:, None] - guess
    q = torch.tensor(QUANTILES)
    return torch.maximum(q * error, (q - 1) * error).mean()


@torch.no_grad()
def check(model, loader, spread):
    model.eval()
    loss = gap = inside = seen = 0.0
    for pollen, age in loader:
        guess = model(pollen)
        n = len(age)
        loss += pinball(guess, age).item() * n
        gap += (guess[:, 1] - age).abs().sum().item() * spread
        inside += ((guess[:, 0] <= age) & (age <= guess[:, 2])).sum().item()
        seen += n
    model.train()
    return loss / seen, gap / seen, inside / seen


def main(seed, fixed, epochs, batch, lr, momentum, width, layers):
    torch.manual_seed(seed)
    landscape = make_landscape(seed)
    pollen, age = drill(layers, seed + 1, landscape)
    other_pollen, other_age = drill(400, seed + 2, landscape)
    mean, std = pollen.mean(0), pollen.std(0)
    middle, spread = age.mean(), age.std()

    def tensors(p, a):
        return TensorDataset(
            torch.from_numpy((p - mean) / std), torch.from_numpy((a - middle) / spread)
        )

    train_loader = DataLoader(tensors(pollen, age), batch, shuffle=True)
    valid_loader = DataLoader(tensors(other_pollen, other_age), 200)

    model = AgeModel(width)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer,
        T_max=epochs * len(train_loader) if fixed else epochs,
        eta_min=lr / 1000,
    )
    best = math.inf
    with tempfile.NamedTemporaryFile(suffix=".pt") as store:
        for epoch in range(epochs):
            losses = []
            for p, a in train_loader:
                optimizer.zero_grad()
                loss = pinball(model(p), a)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                optimizer.step()
                scheduler.step()
                losses.append(loss.item())
            valid, gap, inside = check(model, valid_loader, float(spread))
            best = min(best, valid)
            print(
                f"{epoch + 1:2d}/{epochs} pinball {np.mean(losses):.5f} "
                f"valid {valid:.5f} gap {1000 * gap:.0f} years covered {inside:.2f}"
            )
        torch.save(model.state_dict(), store.name)
    print(f"last valid {valid:.5f}, best {best:.5f}, gap {1000 * gap:.0f} years")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    for key, value in DEFAULTS.items():
        parser.add_argument("--" + key, type=type(value), default=value)
    main(**vars(parser.parse_args()))
