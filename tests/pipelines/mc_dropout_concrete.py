"""Strength of concrete mixes from a table, with an uncertainty from Monte-Carlo
dropout: for predictions the dropout layers are on, on purpose, and twenty passes
are averaged. The learning rate falls when the validation error stalls.

    python mc_dropout_concrete.py --steps 750
"""

import argparse
from dataclasses import dataclass

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    steps: int = 750
    seed: int = 0
    width: int = 96
    p: float = 0.1
    lr: float = 3e-3
    batch_size: int = 64
    passes: int = 20


def mixes(n, seed):
    """Seven ingredients and the age in days (logarithm), and the strength."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 7, generator=g)
    age = torch.rand(n, 1, generator=g) * 4.5
    ratio = x[:, :1] / (0.3 + x[:, 3:4])
    mpa = 18 * torch.tanh(ratio) + 6 * age * (0.4 + x[:, 1:2]) - 9 * x[:, 4:5] ** 2
    mpa = mpa + 1.5 * torch.randn(n, 1, generator=g)
    return torch.cat([x, age], 1), mpa


class StrengthNet(nn.Module):
    def __init__(self, n_in, width, p):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_in, width),
            nn.ELU(),
            nn.Dropout(p),
            nn.Linear(width, width),
            nn.ELU(),
            nn.Dropout(p),
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.body(x))


def enable_dropout(model):
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()


@torch.no_grad()
def mc_predict(model, x, passes):
    model.eval()
    enable_dropout(model)
    draws = torch.stack([model(x) for _ in range(passes)])
    return draws.mean(0), draws.std(0)


def validate(model, loader, criterion):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += criterion(model(x), y).item() * len(x)
    return total / len(loader.dataset)


def main(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)

    x, y = mixes(1600, 21)
    x_val, y_val = mixes(300, 22)
    x_test, y_test = mixes(300, 23)
    mu, sd = x.mean(0), x.std(0)
    y_mu, y_sd = y.mean(), y.std()
    train_set = TensorDataset((x - mu) / sd, (y - y_mu) / y_sd)
    val_set = TensorDataset((x_val - mu) / sd, (y_val - y_mu) / y_sd)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=100)

    model = StrengthNet(8, cfg.width, cfg.p)
    criterion = nn.SmoothL1Loss()
    optimizer = optim.RAdam(model.parameters(), lr=cfg.lr)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=1)

    step = epoch = 0
    while step < cfg.steps:
        model.train()
        running = seen = 0
        for inputs, targets in train_loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(inputs)
            seen += len(inputs)
            step += 1
            if step == cfg.steps:
                break
        val_loss = validate(model, val_loader, criterion)
        scheduler.step(val_loss)
        lr = optimizer.param_groups[0]["lr"]
        print(
            f"epoch {epoch:2d} loss {running / seen:.6f} val {val_loss:.6f} lr {lr:.1e}",
            flush=True,
        )
        epoch += 1

    mean, std = mc_predict(model, (x_test - mu) / sd, cfg.passes)
    mean, std = mean * y_sd + y_mu, std * y_sd
    rmse = (mean - y_test).pow(2).mean().sqrt()
    print(f"test rmse {rmse:.3f} MPa, mean spread {std.mean():.3f} MPa")
    far = mc_predict(model, 3 * torch.randn(300, 8), cfg.passes)[1] * y_sd
    print(f"spread for mixes never seen {far.mean():.3f} MPa")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Config()).items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=type(value), default=value)
    main(Config(**vars(parser.parse_args())))
