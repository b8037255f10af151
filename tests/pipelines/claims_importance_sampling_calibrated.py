"""Which warranty claims deserve a second look?  Importance sampling, then calibration.

Training rows are drawn with replacement in proportion to their last known loss, mixed with the
uniform, and each is weighed by 1 / (N p), so the gradient stays that of the plain mean loss; the
sampler is rebuilt every epoch.  Then the net is frozen, a temperature and a bias are fitted by
L-BFGS on the calibration split, the threshold is chosen for the costs of the two mistakes on
the same split, and the test split is used once.
"""
import argparse
import copy
import dataclasses
import json
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

PARTS, NUMERIC = 30, 8


@dataclasses.dataclass
class Config:
    epochs: int = 10
    batch_size: int = 128
    lr: float = 2e-3
    uniform_share: float = 0.3
    memory: float = 0.5
    patience: int = 4
    cost_miss: float = 8.0
    cost_false_alarm: float = 1.0
    seed: int = 13


class Claims(Dataset):
    """Gives the row number as well: the loss table needs it."""

    def __init__(self, n, gen, world):
        self.part = torch.randint(0, PARTS, (n,), generator=gen)
        self.numeric = torch.randn(n, NUMERIC, generator=gen)
        score = (
            -3.6
            + world[self.part]
            + 1.3 * self.numeric[:, 0]
            + 1.2 * self.numeric[:, 1] * self.numeric[:, 2]
            + 1.0 * (self.numeric[:, 3] > 1).float()
        )
        self.y = (torch.rand(n, generator=gen) < torch.sigmoid(score)).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return i, self.part[i], self.numeric[i], self.y[i]


class Net(nn.Module):
    def __init__(self, prior):
        super().__init__()
        self.part = nn.Embedding(PARTS, 8)
        self.body = nn.Sequential(
            nn.Linear(NUMERIC + 8, 64),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(64, 32),
            nn.ReLU(),
            nn.Linear(32, 1),
        )
        nn.init.constant_(self.body[-1].bias, float(np.log(prior / (1 - prior))))

    def forward(self, part, numeric):
        return self.body(torch.cat([self.part(part), numeric], dim=1)).squeeze(1)


class LossTable:
    def __init__(self, n, cfg):
        self.values, self.cfg = torch.ones(n, dtype=torch.float64), cfg

    def probabilities(self):
        share = self.values / self.values.sum()
        return (1 - self.cfg.uniform_share) * share + self.cfg.uniform_share / len(
            share
        )

    def update(self, rows, losses):
        # a row may be drawn twice in a batch: either of its losses will do
        keep = self.cfg.memory
        self.values[rows] = keep * self.values[rows] + (1 - keep) * losses.double()


@torch.no_grad()
def logits_of(model, data):
    model.eval()
    return model(data.part, data.numeric)


def auc(scores, y):
    ranks = scores.argsort().argsort().double() + 1
    pos = y.sum().double()
    return ((ranks[y > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def calibration_error(prob, y, bins=10):
    """Equal-count bins: nearly all probabilities are small here."""
    order = prob.argsort().chunk(bins)
    return sum(
        (prob[o].mean() - y[o].mean()).abs().item() * len(o) for o in order
    ) / len(y)


def train(cfg, train_set, val_set):
    model = Net(train_set.y.mean().item())
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    table, n = LossTable(len(train_set), cfg), len(train_set)
    gen = torch.Generator().manual_seed(cfg.seed + 1)
    best, best_state, bad, history = float("inf"), None, 0, []
    for epoch in range(cfg.epochs):
        p = table.probabilities()
        sampler = WeightedRandomSampler(p, n, replacement=True, generator=gen)
        correction = 1.0 / (n * p)  # fixed for the epoch, as p is
        assert correction.max() <= 1 / cfg.uniform_share + 1e-6  # the mixture bounds it
        model.train()
        mean_loss = 0.0
        for rows, part, numeric, y in DataLoader(
            train_set, cfg.batch_size, sampler=sampler
        ):
            each = F.binary_cross_entropy_with_logits(
                model(part, numeric), y, reduction="none"
            )
            # divided by the batch size and not by the sum of the weights: unbiased
            loss = (correction[rows].float() * each).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            table.update(rows, each.detach())
            mean_loss += loss.item() * len(rows) / n
        val_logits = logits_of(model, val_set)
        val = F.binary_cross_entropy_with_logits(val_logits, val_set.y).item()
        history.append(mean_loss)
        print(
            json.dumps(
                {
                    "epoch": epoch,
                    "train": round(mean_loss, 4),
                    "val": round(val, 4),
                    "val_auc": round(auc(val_logits, val_set.y), 4),
                    "largest_p_times_n": round((p.max() * n).item(), 2),
                }
            )
        )
        if val < best:
            best, best_state, bad = val, copy.deepcopy(model.state_dict()), 0
        else:
            bad += 1
            if bad == cfg.patience:
                break
    model.load_state_dict(best_state)
    return model.requires_grad_(False), history


def calibrate(logits, y):
    log_temperature, bias = (torch.zeros((), requires_grad=True) for _ in range(2))
    opt = torch.optim.LBFGS(
        [log_temperature, bias], max_iter=50, line_search_fn="strong_wolfe"
    )

    def closure():
        opt.zero_grad()
        loss = F.binary_cross_entropy_with_logits(
            logits / log_temperature.exp() + bias, y
        )
        loss.backward()
        return loss

    before = closure().item()
    opt.step(closure)
    assert closure().item() <= before + 1e-6
    return log_temperature.exp().item(), bias.item()


def cost(prob, y, threshold, cfg):
    flag = prob >= threshold
    return (
        (
            (~flag & (y > 0)).float() * cfg.cost_miss
            + (flag & (y == 0)).float() * cfg.cost_false_alarm
        )
        .mean()
        .item()
    )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    world = 1.2 * torch.randn(PARTS, generator=gen)
    train_set, val_set, cal_set, test_set = (
        Claims(n, gen, world) for n in (8000, 2000, 3000, 4000)
    )
    model, history = train(cfg, train_set, val_set)
    temperature, bias = calibrate(logits_of(model, cal_set), cal_set.y)
    cal_prob = torch.sigmoid(logits_of(model, cal_set) / temperature + bias)
    grid = torch.linspace(0.01, 0.9, 90)
    threshold = min(grid.tolist(), key=lambda t: cost(cal_prob, cal_set.y, t, cfg))

    prob = torch.sigmoid(logits_of(model, test_set) / temperature + bias)
    report = {
        "temperature": temperature,
        "bias": bias,
        "threshold": threshold,
        "test_auc": auc(prob, test_set.y),
        "test_ece": calibration_error(prob, test_set.y),
        "test_cost": cost(prob, test_set.y, threshold, cfg),
        "cost_never": cost(prob, test_set.y, 2.0, cfg),
        "positives": test_set.y.mean().item(),
    }
    print(json.dumps({k: round(v, 4) for k, v in report.items()}))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "claims.npz")
        np.savez(path, **{k: v.numpy() for k, v in model.state_dict().items()})
        with np.load(path) as blob:
            again = Net(0.5)
            again.load_state_dict({k: torch.from_numpy(blob[k]) for k in blob.files})
        assert torch.equal(logits_of(again, test_set), logits_of(model, test_set))
    if len(history) > 1:
        assert history[-1] < history[0]
    if cfg.epochs >= 6:
        assert report["test_auc"] > 0.8 and report["test_ece"] < 0.03
        assert report["test_cost"] < 0.8 * report["cost_never"]


if __name__ == "__main__":
    main()
