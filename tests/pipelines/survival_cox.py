"""Deep Cox model on simulated registry data.

Times are in whole months, so there are ties (Breslow). Missing lab values are filled
with training medians and flagged. Early stopping on validation partial likelihood.
"""
import argparse
import math

import numpy as np
import pprint
import torch
from torch import nn

NUMERIC = ["age", "bmi", "crp", "albumin", "tumour_mm", "nodes"]


def registry(n, rng):
    x = rng.normal(size=(n, len(NUMERIC)))
    x[:, 2] = np.exp(0.6 * x[:, 2])
    x[:, 5] = rng.poisson(np.exp(0.5 + 0.4 * x[:, 4]))
    stage = rng.integers(0, 3, n)
    risk = (
        0.6 * x[:, 0]
        + 0.25 * np.minimum(x[:, 2], 4)
        - 0.5 * np.maximum(x[:, 3], -1)
        + 0.4 * x[:, 4] * (x[:, 0] > 0)
        + 0.15 * x[:, 5]
        + np.array([0.0, 0.5, 1.2])[stage]
    )
    time = rng.weibull(1.3, n) * 60 * np.exp(-risk / 1.3 + 0.8)
    censor = rng.uniform(6, 120, n)
    event = (time <= censor).astype(np.float32)
    months = np.ceil(np.minimum(time, censor)).astype(np.float32)
    x[rng.random(n) < 0.15, 2] = np.nan
    x[rng.random(n) < 0.10, 3] = np.nan
    return x, stage, months, event


class Preprocess:
    def fit(self, x):
        self.median = np.nanmedian(x, axis=0)
        filled = np.where(np.isnan(x), self.median, x)
        self.mean, self.std = filled.mean(0), filled.std(0)
        return self

    def __call__(self, x, stage):
        missing = np.isnan(x)[:, 2:4]
        z = (np.where(np.isnan(x), self.median, x) - self.mean) / self.std
        return torch.tensor(
            np.concatenate([z, missing, np.eye(3)[stage]], axis=1), dtype=torch.float32
        )


class CoxLoss(nn.Module):
    """Negative log partial likelihood per event, risk set t_j >= t_i within the batch."""

    def forward(self, log_risk, time, event):
        at_risk = time[None, :] >= time[:, None]
        denom = torch.logsumexp(
            log_risk[None, :].masked_fill(~at_risk, -math.inf), dim=1
        )
        return -((log_risk - denom) * event).sum() / event.sum().clamp_min(1)


def concordance(log_risk, time, event):
    earlier = (time[:, None] < time[None, :]) & (event[:, None] == 1)
    diff = log_risk[:, None] - log_risk[None, :]
    return ((diff > 0).float() + 0.5 * (diff == 0).float())[earlier].mean().item()


def network(n_in, p=0.2):
    net = nn.Sequential(
        nn.Linear(n_in, 32),
        nn.SELU(),
        nn.AlphaDropout(p),
        nn.Linear(32, 16),
        nn.SELU(),
        nn.AlphaDropout(p),
        nn.Linear(16, 1, bias=False),
    )
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.weights = patience, math.inf, 0, None

    def update(self, value, model):
        if value < self.best - 1e-4:
            self.best, self.bad = value, 0
            self.weights = {
                k: v.detach().clone() for k, v in model.state_dict().items()
            }
        else:
            self.bad += 1
        return self.bad >= self.patience


def evaluate(model, criterion, x, time, event):
    model.eval()
    with torch.no_grad():
        out = model(x).squeeze(1)
        return criterion(out, time, event).item(), concordance(out, time, event)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--epochs", type=int, default=40)
    cli.add_argument("--batch-size", type=int, default=200)
    cli.add_argument("--seed", type=int, default=1912)
    args = cli.parse_args()
    pprint.pprint(vars(args))
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    x, stage, months, event = registry(2400, rng)
    order = rng.permutation(len(x))
    parts = {"train": order[:1600], "valid": order[1600:2000], "test": order[2000:]}
    prep = Preprocess().fit(x[parts["train"]])
    data = {
        k: (
            prep(x[i], stage[i]),
            torch.from_numpy(months[i]),
            torch.from_numpy(event[i]),
        )
        for k, i in parts.items()
    }
    xt, tt, et = data["train"]
    print(f"events in training: {int(et.sum())} of {len(et)}")

    model, criterion = network(xt.size(1)), CoxLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimizer, T_0=10, T_mult=2
    )
    stopper = EarlyStopping(patience=12)
    n_batches = math.ceil(len(xt) / args.batch_size)
    for epoch in range(args.epochs):
        model.train()
        losses, events = 0.0, 0.0
        for b, idx in enumerate(torch.randperm(len(xt)).split(args.batch_size)):
            optimizer.zero_grad()
            loss = criterion(model(xt[idx]).squeeze(1), tt[idx], et[idx])
            loss.backward()
            optimizer.step()
            scheduler.step(epoch + (b + 1) / n_batches)
            losses += loss.item() * et[idx].sum().item()
            events += et[idx].sum().item()
        valid, c_index = evaluate(model, criterion, *data["valid"])
        if epoch % 4 == 0:
            print(
                f"{epoch:3d} train {losses / events:.3f} valid {valid:.4f} C {c_index:.3f}"
            )
        if stopper.update(valid, model):
            print(f"stopped after epoch {epoch}")
            break
    model.load_state_dict(stopper.weights)
    loss, c_index = evaluate(model, criterion, *data["test"])
    print(f"test: partial likelihood {loss:.4f}, concordance {c_index:.3f}")


if __name__ == "__main__":
    main()
