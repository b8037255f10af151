"""Neural ODE (fixed-step RK4, written out) fitted to noisy predator-prey counts."""
import argparse
import dataclasses

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass
class Settings:
    steps: int = 240
    batch: int = 32
    window: int = 16
    dt: float = 0.15
    lr: float = 5e-3
    noise: float = 0.03
    seed: int = 8


def rk4_step(f, y, dt):
    k1 = f(y)
    k2 = f(y + 0.5 * dt * k1)
    k3 = f(y + 0.5 * dt * k2)
    k4 = f(y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def integrate(f, y0, dt, n):
    states = [y0]
    for _ in range(n - 1):
        states.append(rk4_step(f, states[-1], dt))
    return torch.stack(states, dim=1)


def true_field(log_y):
    """Lotka-Volterra with saturating predation, in log abundance."""
    prey, pred = log_y.exp().unbind(-1)
    intake = 1.0 / (1 + 0.2 * prey)
    return torch.stack(
        [1.1 - 0.15 * prey - 0.6 * pred * intake, -0.7 + 0.6 * prey * intake], dim=-1
    )


def observe(n, length, cfg, gen):
    y0 = torch.log(0.5 + 2.0 * torch.rand(n, 2, generator=gen))
    fine = integrate(true_field, y0.double(), cfg.dt / 5, 5 * length)[:, ::5].float()
    return fine + cfg.noise * torch.randn(fine.shape, generator=gen)


class Field(nn.Module):
    def __init__(self, mean, std, hidden=48):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.net = nn.Sequential(
            nn.Linear(2, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 2),
        )
        nn.init.normal_(self.net[-1].weight, std=0.01)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, y):
        return self.net((y - self.mean) / self.std)


class WindowSampler:
    """Random sub-windows of the training trajectories, batch by batch."""

    def __init__(self, series, window, batch, gen):
        self.series, self.window, self.batch, self.gen = series, window, batch, gen

    def __iter__(self):
        return self

    def __next__(self):
        n, length, _ = self.series.shape
        rows = torch.randint(n, (self.batch,), generator=self.gen)
        starts = torch.randint(
            length - self.window + 1, (self.batch,), generator=self.gen
        )
        cols = starts[:, None] + torch.arange(self.window)
        return self.series[rows[:, None], cols]


def forecast_rmse(model, series, dt):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        pred = integrate(model, series[:, 0], dt, series.size(1))
        rmse = (pred - series).pow(2).mean().sqrt().item()
    model.train(was_training)
    return rmse


def fit(cfg):
    torch.manual_seed(cfg.seed)
    np.random.seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    train = observe(40, 60, cfg, gen)
    valid = observe(15, 60, cfg, gen)  # new initial conditions

    model = Field(train.mean((0, 1)), train.std((0, 1)))
    criterion = nn.SmoothL1Loss(beta=0.1)
    optimizer = torch.optim.RAdam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, milestones=[int(0.6 * cfg.steps), int(0.85 * cfg.steps)], gamma=0.3
    )

    print(
        f"before training: 60-step forecast rmse {forecast_rmse(model, valid, cfg.dt):.3f}"
    )
    smoothed = None
    for step, batch in zip(
        range(1, cfg.steps + 1), WindowSampler(train, cfg.window, cfg.batch, gen)
    ):
        pred = integrate(model, batch[:, 0], cfg.dt, cfg.window)
        loss = criterion(pred[:, 1:], batch[:, 1:])
        for p in model.parameters():
            p.grad = None
        loss.backward()
        optimizer.step()
        scheduler.step()
        smoothed = (
            loss.item() if smoothed is None else 0.95 * smoothed + 0.05 * loss.item()
        )
        if step % 40 == 0 or step == cfg.steps:
            print(
                f"step {step:4d}  loss {smoothed:.5f}  lr {scheduler.get_last_lr()[0]:.1e}  "
                f"60-step forecast rmse {forecast_rmse(model, valid, cfg.dt):.3f}"
            )
    return model


if __name__ == "__main__":
    cli = argparse.ArgumentParser()
    for field in dataclasses.fields(Settings):
        cli.add_argument(f"--{field.name}", type=field.type, default=field.default)
    fit(Settings(**vars(cli.parse_args())))
