"""Uplift of a coupon campaign: DragonNet with targeted regularisation, two-fold cross-fitting.

Production style: a config, a trainer with callbacks (early stopping, history, best weights), a report.
Each customer has one arm only, so each outcome head is trained on a part of the batch; a scalar `epsilon`
(targeted regularisation) starts at zero and takes part in the prediction that is reported; each half of the
customers is scored by the model that never saw it.
"""
import argparse
import copy
import json
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    customers: int = 3000
    features: int = 10
    width: int = 48
    batch: int = 100
    epochs: int = 24
    lr: float = 3e-3
    head_decay: float = 1e-2
    propensity_weight: float = 1.0
    targeted_weight: float = 0.5
    patience: int = 6
    seed: int = 21
    callbacks: list = field(default_factory=lambda: ["history", "early_stopping"])


def make_campaign(cfg):
    """Coupons went to customers who spend more anyway, so the naive difference is too high."""
    rng = np.random.default_rng(cfg.seed)
    x = rng.standard_normal((cfg.customers, cfg.features)).astype(np.float32)
    base = 2.0 + 1.2 * x[:, 0] + 0.8 * np.sin(2 * x[:, 1]) + 0.5 * x[:, 2] * x[:, 3]
    uplift = 1.0 + 0.8 * x[:, 4] + 0.6 * (x[:, 5] > 0)
    prob = 1 / (1 + np.exp(-(0.9 * x[:, 0] + 0.5 * x[:, 1])))
    prob = np.clip(prob, 0.05, 0.95)  # overlap holds by construction
    arm = (rng.random(cfg.customers) < prob).astype(np.float32)
    y = base + arm * uplift + 0.5 * rng.standard_normal(cfg.customers)
    return [
        torch.from_numpy(np.asarray(a, dtype=np.float32)) for a in (x, arm, y, uplift)
    ]


class DragonNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        self.trunk = nn.Sequential(
            nn.Linear(cfg.features, w), nn.ELU(), nn.Linear(w, w), nn.ELU()
        )
        self.arms = nn.ModuleList(
            nn.Sequential(nn.Linear(w, w // 2), nn.ELU(), nn.Linear(w // 2, 1))
            for _ in range(2)
        )
        self.propensity = nn.Linear(w, 1)
        self.epsilon = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        h = self.trunk(x)
        return (
            self.arms[0](h).squeeze(1),
            self.arms[1](h).squeeze(1),
            self.propensity(h).squeeze(1),
        )


def clever(arm, logit):
    g = torch.sigmoid(logit).clamp(0.02, 0.98)
    return arm / g - (1 - arm) / (1 - g)


def losses(model, cfg, x, arm, y):
    y0, y1, logit = model(x)
    factual = (
        arm * y1 + (1 - arm) * y0
    )  # the other head gets no gradient from this customer
    outcome = F.mse_loss(factual, y)
    treat = F.binary_cross_entropy_with_logits(logit, arm)
    targeted = F.mse_loss(factual + model.epsilon * clever(arm, logit), y)
    total = outcome + cfg.propensity_weight * treat + cfg.targeted_weight * targeted
    return total, {
        "outcome": outcome.item(),
        "treat": treat.item(),
        "targeted": targeted.item(),
    }


class History:
    def __init__(self):
        self.rows = []

    def on_epoch_end(self, trainer, epoch, train, valid):
        self.rows.append({"epoch": epoch, "train": train, "valid": valid})
        return False


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.since, self.weights = (
            patience,
            float("inf"),
            0,
            None,
        )

    def on_epoch_end(self, trainer, epoch, train, valid):
        if valid < self.best - 1e-4:
            self.best, self.since, self.weights = (
                valid,
                0,
                copy.deepcopy(trainer.model.state_dict()),
            )
        else:
            self.since += 1
        return self.since >= self.patience


class Trainer:
    def __init__(self, cfg, fold):
        torch.manual_seed(cfg.seed + fold)
        self.cfg, self.model = cfg, DragonNet(cfg)
        heads = [p for p in self.model.arms.parameters()]
        rest = [*self.model.trunk.parameters(), *self.model.propensity.parameters()]
        # Only outcome heads are decayed; epsilon has its own slow group.
        self.opt = torch.optim.AdamW(
            [
                {"params": heads, "weight_decay": cfg.head_decay},
                {"params": rest, "weight_decay": 0.0},
                {"params": [self.model.epsilon], "weight_decay": 0.0, "lr": cfg.lr / 3},
            ],
            lr=cfg.lr,
        )
        known = {"history": History(), "early_stopping": EarlyStopping(cfg.patience)}
        self.callbacks = {name: known[name] for name in cfg.callbacks}

    def fit(self, train, valid):
        sizes = len(train[0])
        # Outcome scaling comes from the training part of this fold alone.
        self.mean, self.std = train[2].mean(), train[2].std()
        train, valid = (
            [a, b, (c - self.mean) / self.std] for a, b, c in (train, valid)
        )
        steps = 0
        for epoch in range(self.cfg.epochs):
            self.model.train()
            seen = []
            order = torch.randperm(sizes)
            for pick in order[: sizes - sizes % self.cfg.batch].split(self.cfg.batch):
                total, _ = losses(self.model, self.cfg, *(a[pick] for a in train))
                self.opt.zero_grad(set_to_none=True)
                total.backward()
                self.opt.step()
                seen.append(total.item())
                steps += 1
            self.model.eval()
            with torch.no_grad():
                held, parts = losses(self.model, self.cfg, *valid)
            votes = [
                c.on_epoch_end(self, epoch, float(np.mean(seen)), held.item())
                for c in self.callbacks.values()
            ]
            if epoch % 6 == 0:
                print(
                    f"  epoch {epoch:2d} train {np.mean(seen):.4f} valid {held.item():.4f} {parts}"
                )
            if any(votes):
                break
        self.model.load_state_dict(self.callbacks["early_stopping"].weights)
        return steps

    @torch.no_grad()
    def potential_outcomes(self, x):
        """Both outcomes after the targeted update, in currency again, and the propensity."""
        self.model.eval()
        y0, y1, logit = self.model(x)
        one = torch.ones_like(y0)
        y0 = y0 + self.model.epsilon * clever(0 * one, logit)
        y1 = y1 + self.model.epsilon * clever(one, logit)
        return (
            y0 * self.std + self.mean,
            y1 * self.std + self.mean,
            torch.sigmoid(logit).clamp(0.02, 0.98),
        )


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=Config.epochs)
    cfg = Config(epochs=ap.parse_args().epochs)
    x, arm, y, truth = make_campaign(cfg)
    order = torch.randperm(
        cfg.customers, generator=torch.Generator().manual_seed(cfg.seed)
    )
    folds = order.chunk(2)

    y0, y1, g = (torch.full_like(y, float("nan")) for _ in range(3))
    curves = []
    for k, (scored, fitted) in enumerate(((folds[0], folds[1]), (folds[1], folds[0]))):
        assert not set(scored.tolist()) & set(fitted.tolist())
        cut = int(0.8 * len(fitted))
        parts = [[a[idx] for a in (x, arm, y)] for idx in (fitted[:cut], fitted[cut:])]
        print(f"fold {k}")
        trainer = Trainer(cfg, k)
        steps = trainer.fit(*parts)
        y0[scored], y1[scored], g[scored] = trainer.potential_outcomes(x[scored])
        curves.append(trainer.callbacks["history"].rows)
        print(
            f"  {steps} steps, best valid {trainer.callbacks['early_stopping'].best:.4f}, epsilon {trainer.model.epsilon.item():+.4f}"
        )
    assert not torch.isnan(y0 + y1 + g).any(), "every customer is scored once"

    score = y1 - y0 + arm * (y - y1) / g - (1 - arm) * (y - y0) / (1 - g)
    report = {
        "true_ate": truth.mean().item(),
        "naive": (y[arm == 1].mean() - y[arm == 0].mean()).item(),
        "plug_in": (y1 - y0).mean().item(),
        "aipw": score.mean().item(),
        "aipw_se": (score.std() / len(score) ** 0.5).item(),
        "pehe": (y1 - y0 - truth).pow(2).mean().sqrt().item(),
        "spread_of_truth": truth.std().item(),
    }
    print(
        json.dumps(
            {
                "config": asdict(cfg),
                "report": {k: round(v, 4) for k, v in report.items()},
            },
            indent=1,
        )
    )
    if cfg.epochs >= 15:
        assert all(rows[-1]["train"] < 0.7 * rows[0]["train"] for rows in curves)
        assert abs(report["aipw"] - report["true_ate"]) < 0.25 * abs(
            report["naive"] - report["true_ate"]
        )
        assert report["pehe"] < report["spread_of_truth"]


if __name__ == "__main__":
    main()
