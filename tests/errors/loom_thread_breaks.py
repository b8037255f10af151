"""Will the warp thread break?  Thread tension of a loom, 32 readings before the verdict.

Two jolts in the same direction stretch the thread, a jolt and its opposite cancel out,
and vibration weakens the thread as well.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

READINGS = 32
CHANNELS = 3


@dataclass
class Config:
    seed: int = 0
    fixed: bool = False
    windows: int = 2000
    epochs: int = 12
    batch_size: int = 50
    d_model: int = 32
    heads: int = 4
    layers: int = 2
    lr: float = 2e-3
    warmup: int = 30


def make_windows(cfg: Config) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(cfg.seed + 77)
    n = cfg.windows
    t = torch.arange(READINGS).float()
    first = torch.randint(3, 14, (n, 1), generator=g)
    second = first + torch.randint(8, 16, (n, 1), generator=g)
    way = torch.randint(0, 2, (n, 2), generator=g).float() * 2 - 1
    size = 1.5 + 0.6 * torch.rand(n, 1, generator=g)
    tension = size * way[:, :1] * torch.exp(-((t - first) ** 2) / 4)
    tension = tension + size * way[:, 1:] * torch.exp(-((t - second) ** 2) / 4)
    alike = way.prod(1, keepdim=True)
    speed = torch.randn(n, 1, generator=g) * 0.5
    shake = torch.rand(n, 1, generator=g)
    vibration = shake * torch.randn(n, READINGS, generator=g)
    x = torch.stack([tension, speed.expand(n, READINGS), vibration], 2)
    x = x + 0.2 * torch.randn(n, READINGS, CHANNELS, generator=g)
    risk = 1.5 * alike + 4.0 * (shake - 0.5) + 1.0 * speed
    risk = risk + 0.5 * torch.randn(n, 1, generator=g)
    return x, (risk.squeeze(1) > 0).float()


class LoomTransformer(nn.Module):
    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.embed = nn.Linear(CHANNELS, cfg.d_model)
        self.position = nn.Parameter(torch.randn(1, READINGS, cfg.d_model) * 0.3)
        layer = nn.TransformerEncoderLayer(
            cfg.d_model,
            cfg.heads,
            dim_feedforward=2 * cfg.d_model,
            dropout=0.1,
            batch_first=cfg.fixed,
        )
        self.encoder = nn.TransformerEncoder(
            layer, cfg.layers, enable_nested_tensor=False
        )
        self.norm = nn.LayerNorm(cfg.d_model)
        self.verdict = nn.Linear(cfg.d_model, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.position
        h = self.encoder(h)
        return self.verdict(self.norm(h).mean(1)).squeeze(-1)


def area_under_curve(scores: Tensor, labels: Tensor) -> float:
    positive, negative = scores[labels == 1], scores[labels == 0]
    return (positive[:, None] > negative[None]).float().mean().item()


class Experiment:
    def __init__(self, cfg: Config, folder: Path) -> None:
        self.cfg, self.folder = cfg, folder
        torch.manual_seed(cfg.seed)
        data = TensorDataset(*make_windows(cfg))
        cut = int(0.8 * cfg.windows)
        train, valid = random_split(data, [cut, cfg.windows - cut])
        self.train_loader = DataLoader(train, cfg.batch_size, shuffle=True)
        self.valid_loader = DataLoader(valid, cfg.batch_size)
        self.model = LoomTransformer(cfg)
        self.criterion = nn.BCEWithLogitsLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        total = cfg.epochs * len(self.train_loader)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda s: min((s + 1) / cfg.warmup, (total - s) / (total - cfg.warmup)),
        )

    def fit(self) -> None:
        for epoch in range(self.cfg.epochs):
            self.model.train()
            losses = []
            for x, y in self.train_loader:
                loss = self.criterion(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.scheduler.step()
                losses.append(loss.item())
            loss, accuracy, auc = self.validate()
            print(
                f"{epoch:>3} | train {sum(losses) / len(losses):.4f} | valid {loss:.4f}"
                f" | accuracy {accuracy:.3f} | AUC {auc:.3f}"
            )
        state = {"config": asdict(self.cfg), "model": self.model.state_dict()}
        torch.save(state, self.folder / "loom.pt")

    @torch.no_grad()
    def validate(self) -> tuple[float, float, float]:
        self.model.eval()
        scores = torch.cat([self.model(x) for x, _ in self.valid_loader])
        labels = torch.cat([y for _, y in self.valid_loader])
        accuracy = ((scores > 0).float() == labels).float().mean().item()
        loss = self.criterion(scores, labels).item()
        return loss, accuracy, area_under_curve(scores, labels)

    @torch.no_grad()
    def verdicts(self, count: int = 6) -> None:
        self.model.eval()
        x, y = next(iter(self.valid_loader))
        chance = torch.sigmoid(self.model(x[:count]))
        for number in range(count):
            word = "broke" if y[number] else "held"
            print(f"window {number}: chance of a break {chance[number]:.2f}, {word}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in asdict(Config()).items():
        if name == "fixed":
            parser.add_argument("--fixed", action="store_true")
        else:
            parser.add_argument(
                "--" + name.replace("_", "-"), type=type(default), default=default
            )
    cfg = Config(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(cfg, Path(folder))
        experiment.fit()
        experiment.verdicts()


if __name__ == "__main__":
    main()
