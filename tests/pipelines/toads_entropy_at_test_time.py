"""Toad calls from cheap recorders: a model that goes on adapting while it is being evaluated.

Part one trains a 1-D convolutional net on clean recordings and saves it. Part two is the field
station: for each recorder, the saved weights are loaded anew, everything but the scale and shift of
the BatchNorms is frozen, BatchNorm takes the statistics of the batch at hand, and each incoming
batch is first answered and then used to lower the entropy of the answers (Tent). No label is used
for that; labels serve only to score the answers. Answers come before the step on the same batch.
"""
import argparse
import os
import tempfile
from typing import Dict, List

import torch
from torch import nn
from torch.nn import functional as F

SETTINGS = {
    "species": 5,
    "length": 96,
    "train_calls": 2000,
    "field_calls": 1500,
    "batch": 64,
    "field_batch": 100,
    "lr": 2e-3,
    "tent_lr": 2e-3,
    "seed": 37,
}
RECORDERS = {  # gain, offset, hiss, muffle
    "clean": (1.0, 0.0, 0.0, 0),
    "loud and offset": (2.0, 0.7, 0.2, 0),
    "hissing": (0.8, 0.0, 0.6, 0),
    "muffled": (0.6, -0.3, 0.2, 3),
}


def calls(n: int, gen: torch.Generator):
    """Each species trills at its own pitch, with its own rate of pulses."""
    y = torch.randint(SETTINGS["species"], (n,), generator=gen)
    t = torch.arange(SETTINGS["length"]).float() / SETTINGS["length"]
    pitch = torch.tensor([6.0, 8.0, 10.0, 12.0, 14.0])[y].unsqueeze(1)
    pulse = torch.tensor([2.0, 4.0, 2.5, 3.5, 3.0])[y].unsqueeze(1)
    pitch = pitch * (1 + 0.04 * torch.randn(n, 1, generator=gen))
    phase = 6.28 * torch.rand(n, 2, generator=gen)
    x = (
        torch.sin(6.2832 * pitch * t + phase[:, :1])
        * (1 + torch.sin(6.2832 * pulse * t + phase[:, 1:]))
        / 2
    )
    return x.unsqueeze(1) + 0.25 * torch.randn(n, 1, len(t), generator=gen), y


def through(recorder: str, x: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    gain, offset, hiss, muffle = RECORDERS[recorder]
    if muffle:
        x = F.avg_pool1d(
            F.pad(x, (muffle // 2, muffle // 2), mode="replicate"), muffle, stride=1
        )
    return gain * x + offset + hiss * torch.randn(x.shape, generator=gen)


class CallNet(nn.Module):
    def __init__(self, width: int = 24):
        super().__init__()
        chan = [1, width, width, 2 * width]
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, 7, padding=3, bias=False) for a, b in zip(chan, chan[1:])
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in chan[1:])
        self.head = nn.Linear(2 * width, SETTINGS["species"])

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms):
            x = F.max_pool1d(F.relu(norm(conv(x))), 2)
        return self.head(x.mean(2))


class SourceTrainer:
    def __init__(self, model: nn.Module, folder: str):
        self.model, self.path = model, os.path.join(folder, "source.pt")
        self.opt = torch.optim.AdamW(
            model.parameters(), lr=SETTINGS["lr"], weight_decay=0.01
        )
        self.best = 0.0

    def epoch(self, x, y) -> float:
        self.model.train()
        total = 0.0
        batches = [
            b
            for b in torch.randperm(len(x)).split(SETTINGS["batch"])
            if len(b) == SETTINGS["batch"]
        ]
        for rows in batches:
            loss = F.cross_entropy(self.model(x[rows]), y[rows])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(batches)

    def fit(self, train, valid, epochs: int) -> None:
        for e in range(epochs):
            loss = self.epoch(*train)
            acc = accuracy(self.model, *valid)
            if acc >= self.best:
                self.best = acc
                torch.save(
                    {"model": self.model.state_dict(), "epoch": e, "valid": acc},
                    self.path,
                )
            print(
                f"epoch {e} loss {loss:.4f} validation {acc:.4f}{' *' if acc == self.best else ''}"
            )


@torch.no_grad()
def accuracy(model, x, y) -> float:
    model.eval()
    return (
        torch.cat([model(c).argmax(1) for c in x.split(256)])
        .eq(y)
        .float()
        .mean()
        .item()
    )


class FieldStation:
    """Tent around a fresh copy of the source model."""

    def __init__(self, checkpoint: str):
        self.model = CallNet()
        self.model.load_state_dict(torch.load(checkpoint)["model"])
        self.model.requires_grad_(False)
        affine: List[nn.Parameter] = []
        for m in self.model.modules():
            if isinstance(m, nn.BatchNorm1d):
                m.track_running_stats = False  # statistics of the batch, always
                m.running_mean = m.running_var = None
                affine += [m.weight.requires_grad_(), m.bias.requires_grad_()]
        self.model.train()
        self.frozen = {
            n: p.clone()
            for n, p in self.model.named_parameters()
            if not p.requires_grad
        }
        self.opt = torch.optim.Adam(affine, lr=SETTINGS["tent_lr"])
        self.entropies: List[float] = []

    def answer(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.model(x)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
        loss = entropy.mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.entropies.append(loss.item())
        return logits.detach().argmax(1)  # given before the step was taken

    def check(self) -> None:
        for n, p in self.model.named_parameters():
            if n in self.frozen:
                assert torch.equal(p, self.frozen[n]) and p.grad is None, n


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(SETTINGS["seed"])
    gen = torch.Generator().manual_seed(SETTINGS["seed"] + 1)
    train, valid = calls(SETTINGS["train_calls"], gen), calls(500, gen)
    field_x, field_y = calls(SETTINGS["field_calls"], gen)
    report: Dict[str, tuple] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainer = SourceTrainer(CallNet(), folder)
        trainer.fit(train, valid, args.epochs)
        for recorder in RECORDERS:
            x = through(recorder, field_x, gen)
            fixed = CallNet()
            fixed.load_state_dict(torch.load(trainer.path)["model"])
            plain = accuracy(fixed, x, field_y)
            station = FieldStation(
                trainer.path
            )  # episodic: no recorder inherits from another
            order = torch.randperm(len(x))  # calls arrive mixed, as in the field
            right = sum(
                (station.answer(x[rows]) == field_y[rows]).sum().item()
                for rows in order.split(SETTINGS["field_batch"])
            )
            station.check()
            report[recorder] = (plain, right / len(x))
            print(
                f"{recorder:16s} as trained {plain:.3f}  adapting {right / len(x):.3f}  "
                f"entropy {station.entropies[0]:.3f} -> {station.entropies[-1]:.3f}"
            )
        fixed.load_state_dict(torch.load(trainer.path)["model"])
        assert accuracy(fixed, *valid) == trainer.best  # the source is what it was
    if args.epochs >= 5:
        gains = [b - a for k, (a, b) in report.items() if k != "clean"]
        assert trainer.best > 0.9 and report["clean"][1] > 0.85, report
        assert sum(gains) / len(gains) > 0.03, report


if __name__ == "__main__":
    main()
