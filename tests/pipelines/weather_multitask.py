"""Multi-task model for weather stations: next-day temperature (regression), rain yes/no (binary)
and cloud type (4 classes). The three label sets come from different archives, so every task has
its own loader; an update takes one batch of each."""
import argparse
import itertools
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

FEATURES = 14


@dataclass
class Settings:
    steps: int = 240
    hidden: int = 48
    lr: float = 4e-3
    log_var_lr: float = 2e-2
    eval_every: int = 60
    batch: dict = field(default_factory=lambda: {"temp": 64, "rain": 48, "cloud": 32})
    seed: int = 9


class Atmosphere:
    """Hidden truth which all archives share."""

    def __init__(self, seed=100):
        g = torch.Generator().manual_seed(seed)
        self.g = g
        self.mix = torch.randn(FEATURES, 4, generator=g) / FEATURES**0.5
        self.cloud = torch.randn(4, 4, generator=g) * 2

    def sample(self, n, task):
        x = (
            torch.randn(n, FEATURES, generator=self.g)
            * torch.linspace(0.5, 3, FEATURES)
            + 1.0
        )
        h = torch.tanh(x @ self.mix)
        if task == "temp":
            y = (
                12
                + 9 * h[:, 0]
                + 5 * h[:, 1] * h[:, 2]
                + 1.0 * torch.randn(n, generator=self.g)
            )
        elif task == "rain":
            p = torch.sigmoid(4 * h[:, 1] - 3 * h[:, 3] - 1.5)
            y = torch.bernoulli(p, generator=self.g)
        else:
            y = (
                torch.distributions.Categorical(logits=h @ self.cloud * 2)
                .probs.multinomial(1, generator=self.g)
                .squeeze(1)
            )
        return x, y


class Scaler:
    def __init__(self, x):
        self.mean, self.std = x.mean(0), x.std(0)

    def __call__(self, x):
        return (x - self.mean) / self.std


class WeatherNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(FEATURES, hidden),
            nn.LayerNorm(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
        )
        self.heads = nn.ModuleDict(
            {
                "temp": nn.Linear(hidden, 1),
                "rain": nn.Linear(hidden, 1),
                "cloud": nn.Linear(hidden, 4),
            }
        )

    def forward(self, x, task):
        out = self.heads[task](self.trunk(x))
        return out if task == "cloud" else out.squeeze(-1)


class UncertaintyWeights(nn.Module):
    """Kendall, Gal & Cipolla 2018: one log variance per task."""

    def __init__(self, tasks):
        super().__init__()
        self.log_var = nn.ParameterDict(
            {t: nn.Parameter(torch.zeros(())) for t in tasks}
        )

    def forward(self, losses):
        total = 0.0
        for t, l in losses.items():
            s = self.log_var[t]
            factor = 0.5 if t == "temp" else 1.0
            total = total + factor * torch.exp(-s) * l + 0.5 * s
        return total


def build_data(cfg):
    world = Atmosphere()
    sizes = {"temp": 1500, "rain": 1100, "cloud": 900}
    raw = {t: world.sample(n, t) for t, n in sizes.items()}
    g = torch.Generator().manual_seed(cfg.seed)
    parts = {
        t: random_split(range(n), [0.8, 0.2], generator=g) for t, n in sizes.items()
    }
    tr_idx = {t: torch.tensor(list(p[0])) for t, p in parts.items()}
    va_idx = {t: torch.tensor(list(p[1])) for t, p in parts.items()}

    x_scale = Scaler(torch.cat([raw[t][0][tr_idx[t]] for t in raw]))
    y_scale = Scaler(raw["temp"][1][tr_idx["temp"]])
    train, valid = {}, {}
    for t, (x, y) in raw.items():
        y = y_scale(y) if t == "temp" else y
        train[t] = DataLoader(
            TensorDataset(x_scale(x[tr_idx[t]]), y[tr_idx[t]]),
            batch_size=cfg.batch[t],
            shuffle=True,
        )
        valid[t] = DataLoader(
            TensorDataset(x_scale(x[va_idx[t]]), y[va_idx[t]]), batch_size=128
        )
    rain = raw["rain"][1][tr_idx["rain"]]
    return train, valid, y_scale, rain.mean().item()


def forever(loader):
    # a new shuffle at every pass (itertools.cycle would repeat the first one)
    return itertools.chain.from_iterable(itertools.repeat(loader))


LOSSES = {
    "temp": F.mse_loss,
    "rain": F.binary_cross_entropy_with_logits,
    "cloud": F.cross_entropy,
}


@torch.inference_mode()
def evaluate(model, loaders, y_scale):
    model.eval()
    report = {}
    for task, loader in loaders.items():
        outs, ys = zip(*[(model(x, task), y) for x, y in loader])
        out, y = torch.cat(outs), torch.cat(ys)
        if task == "temp":
            report["temp RMSE (deg)"] = (
                (out - y).pow(2).mean().sqrt() * y_scale.std
            ).item()
        elif task == "rain":
            report["rain acc"] = ((out > 0) == (y > 0.5)).float().mean().item()
        else:
            report["cloud acc"] = (out.argmax(-1) == y).float().mean().item()
    model.train()
    return report


def main(cfg):
    torch.manual_seed(cfg.seed)
    train, valid, y_scale, rain_rate = build_data(cfg)
    model, weights = WeatherNet(cfg.hidden), UncertaintyWeights(LOSSES)
    print(
        f"temperature deviation {y_scale.std.item():.2f} deg, rain on {rain_rate:.0%} of the days"
    )

    opt = torch.optim.NAdam(
        [
            {"params": model.parameters(), "lr": cfg.lr},
            {"params": weights.parameters(), "lr": cfg.log_var_lr},
        ]
    )
    milestones = [int(cfg.steps * 0.6), int(cfg.steps * 0.85)]
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, milestones, gamma=0.3)
    streams = {t: forever(l) for t, l in train.items()}

    smooth = {}
    model.train()
    for step in range(1, cfg.steps + 1):
        losses = {}
        for task, stream in streams.items():
            x, y = next(stream)
            losses[task] = LOSSES[task](model(x, task), y)
        opt.zero_grad()
        weights(losses).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        sched.step()
        for t, l in losses.items():
            smooth[t] = (
                l.item() if t not in smooth else 0.95 * smooth[t] + 0.05 * l.item()
            )
        if step % cfg.eval_every == 0 or step == cfg.steps:
            sig = {
                t: round(torch.exp(-p).item(), 2) for t, p in weights.log_var.items()
            }
            rep = ", ".join(
                f"{k} {v:.3f}" for k, v in evaluate(model, valid, y_scale).items()
            )
            print(
                f"{step:4d} "
                + " ".join(f"{t} {v:.3f}" for t, v in smooth.items())
                + f" | {rep} | weights {sig}"
            )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=Settings.steps)
    ap.add_argument("--seed", type=int, default=Settings.seed)
    main(Settings(**vars(ap.parse_args())))
