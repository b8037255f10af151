"""Salt works: salinity, evaporation and crust type of each pan from its instruments.

Three tasks whose labels are missing here and there (NaN, or -100 for the class): the laboratory
takes few samples.  The tasks are weighed by learned uncertainties (Kendall et al. 2018), so the
total loss goes *below zero* when the fit is good, which is fine: it is a log density.
bfloat16 autocast in the trunk, losses in float32, unit-wise adaptive gradient clipping
(Brock et al. 2021) as a guard on the matrices of the trunk.
"""
import argparse
import dataclasses
import json
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IGNORE, CRUSTS, SENSORS = -100, 4, 12


@dataclasses.dataclass
class Config:
    epochs: int = 16
    batch_size: int = 128
    lr: float = 3e-3
    uncertainty_lr: float = 2e-2
    weight_decay: float = 1e-2
    agc: float = 1.5
    width: int = 96
    label_rate: tuple = (0.25, 0.8, 0.4)
    warmup: float = 0.1
    autocast: bool = True
    seed: int = 77


def pans(n, gen, rates):
    x = torch.randn(n, SENSORS, generator=gen)
    salinity = 180 + 40 * torch.tanh(x[:, 0] + 0.5 * x[:, 1]) + 15 * x[:, 2] * x[:, 3]
    evaporation = 5 + 1.5 * x[:, 4] - 0.8 * x[:, 0] + 0.6 * torch.sin(2 * x[:, 5])
    logits = torch.stack(
        [x[:, 0] + x[:, 6], x[:, 7] - x[:, 4], -x[:, 0] + x[:, 8], x[:, 9] * 1.2], dim=1
    )
    crust = logits.argmax(1)
    salinity = salinity + 4 * torch.randn(n, generator=gen)
    evaporation = evaporation + 0.3 * torch.randn(n, generator=gen)
    taken = torch.rand(n, 3, generator=gen) < torch.tensor(rates)
    salinity[~taken[:, 0]] = float("nan")
    evaporation[~taken[:, 1]] = float("nan")
    crust[~taken[:, 2]] = IGNORE
    return x, salinity, evaporation, crust


class Scaler:
    """Mean and deviation of what was measured; fitted on the training pans only."""

    def __init__(self, values):
        seen = values[~values.isnan()]
        self.mean, self.std = seen.mean().item(), seen.std().item()

    def __call__(self, values):
        return (values - self.mean) / self.std  # NaN stays NaN


class PanNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(SENSORS, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
        )
        self.heads = nn.ModuleDict(
            {
                "salinity": nn.Linear(width, 1),
                "evaporation": nn.Linear(width, 1),
                "crust": nn.Linear(width, CRUSTS),
            }
        )
        self.log_var = nn.ParameterDict(
            {k: nn.Parameter(torch.zeros(())) for k in self.heads}
        )

    def forward(self, x):
        h = self.trunk(x)
        return {k: head(h) for k, head in self.heads.items()}


def regression_error(pred, target):
    """Sum of squares over the pans that have a value.  The hole is filled before the arithmetic:
    0 * NaN would still be NaN in the backward pass."""
    there = ~target.isnan()
    residual = pred.squeeze(1).float() - torch.where(there, target, 0.0)
    return (residual.square() * there).sum(), int(there.sum())


def task_losses(model, out, salinity, evaporation, crust):
    losses = {}
    for name, target in (("salinity", salinity), ("evaporation", evaporation)):
        sse, n = regression_error(out[name], target)
        if n:  # a batch may hold no label of a kind
            s = model.log_var[name]
            losses[name] = 0.5 * (-s).exp() * sse / n + 0.5 * s
    if (crust != IGNORE).any():
        s = model.log_var["crust"]
        ce = nn.functional.cross_entropy(
            out["crust"].float(), crust, ignore_index=IGNORE
        )
        losses["crust"] = (-s).exp() * ce + 0.5 * s
    return losses


@torch.no_grad()
def adaptive_clip_(parameters, limit, eps=1e-3):
    clipped = 0
    for p in parameters:
        if p.grad is None:
            continue
        weight = p.norm(dim=1, keepdim=True).clamp_min(eps)
        grad = p.grad.norm(dim=1, keepdim=True)
        ceiling = limit * weight
        factor = torch.where(grad > ceiling, ceiling / grad.clamp_min(1e-6), 1.0)
        clipped += int((factor < 1).sum())
        p.grad.mul_(factor)
    return clipped


@torch.no_grad()
def evaluate(model, data, scalers):
    """Physical units, on fully labelled pans, float32 (as it will be served)."""
    model.eval()
    x, salinity, evaporation, crust = data
    out = model(x)
    metrics = {"crust_acc": (out["crust"].argmax(1) == crust).float().mean().item()}
    for name, target in (("salinity", salinity), ("evaporation", evaporation)):
        scaler = scalers[name]
        pred = out[name].squeeze(1) * scaler.std + scaler.mean
        metrics[f"{name}_rmse"] = (pred - target).square().mean().sqrt().item()
    return metrics


# size: the whole run in one place, read from top to bottom
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    x, salinity, evaporation, crust = pans(4000, gen, cfg.label_rate)
    test = pans(1000, gen, (1.0, 1.0, 1.0))
    assert salinity.isnan().any() and not test[1].isnan().any()
    scalers = {"salinity": Scaler(salinity), "evaporation": Scaler(evaporation)}
    train = TensorDataset(
        x, scalers["salinity"](salinity), scalers["evaporation"](evaporation), crust
    )
    loader = DataLoader(
        train, cfg.batch_size, shuffle=True, drop_last=True, generator=gen
    )

    model = PanNet(cfg.width)
    trunk, heads = list(model.trunk.parameters()), list(model.heads.parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": trunk, "lr": cfg.lr, "weight_decay": cfg.weight_decay},
            {"params": heads, "lr": cfg.lr, "weight_decay": 0.0},
            {
                "params": list(model.log_var.values()),
                "lr": cfg.uncertainty_lr,
                "weight_decay": 0.0,
            },
        ]
    )
    matrices = [p for p in trunk if p.ndim == 2]
    total = cfg.epochs * len(loader)
    warm = max(1, int(cfg.warmup * total))
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=warm),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, total - warm)),
        ],
        [warm],
    )

    start = evaluate(model, test, scalers)
    curve = []
    for epoch in range(cfg.epochs):
        model.train()
        sums, clipped = 0.0, 0
        for batch_x, *labels in loader:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cfg.autocast):
                out = model(batch_x)
            losses = task_losses(model, out, *labels)  # outside: float32
            loss = sum(losses.values())
            assert loss.dtype == torch.float32
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            clipped += adaptive_clip_(matrices, cfg.agc)
            optimizer.step()
            schedule.step()
            sums += loss.item()
        curve.append(sums / len(loader))
        sigma = {
            f"s_{k}": round(math.exp(0.5 * v.item()), 3)
            for k, v in model.log_var.items()
        }
        metrics = {k: round(v, 3) for k, v in evaluate(model, test, scalers).items()}
        share = clipped / (len(loader) * sum(p.shape[0] for p in matrices))
        print(
            json.dumps(
                {
                    "epoch": epoch,
                    "loss": round(curve[-1], 4),
                    "clipped": round(share, 3),
                    **metrics,
                    **sigma,
                }
            )
        )

    end = evaluate(model, test, scalers)
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert curve[-1] < curve[0]
    assert end["salinity_rmse"] < start["salinity_rmse"]
    if cfg.epochs >= 10:
        assert curve[-1] < 0.0, "a log density: it should have crossed zero"
        assert end["salinity_rmse"] < 0.5 * start["salinity_rmse"]
        assert end["evaporation_rmse"] < 0.5 * start["evaporation_rmse"]
        assert end["crust_acc"] > 0.8


if __name__ == "__main__":
    main()
