"""Tells how a brick kiln's burners misbehave from three thermocouples, with the Trainer
of a small company: hooks are found by name in a registry, validation runs before the
first step and twice in an epoch, the three best checkpoints are kept. When validation
no longer improves, the best weights are put back and the rate falls; at the second
such time training ends.

    python kiln_hooks_trainer.py --steps 240
"""

import argparse
import heapq
import itertools
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HOOKS = {}


def register_hook(name):
    def add(cls):
        HOOKS[name] = cls
        return cls

    return add


@register_hook("console")
class ConsoleHook:
    def __init__(self, every=10):
        self.every = every

    def on_step_end(self, trainer):
        if trainer.step % self.every == 0:
            where = f"epoch {trainer.epoch} step {trainer.step}"
            print(f"{where} loss {trainer.loss:.6f}", flush=True)

    def on_validation_end(self, trainer):
        parts = [f"{name} {value:.4f}" for name, value in trainer.metrics.items()]
        print("  validation", *parts, flush=True)


@register_hook("top_k")
class TopKHook:
    def __init__(self, folder, k=3):
        self.folder, self.k, self.kept = folder, k, []

    def on_validation_end(self, trainer):
        path = os.path.join(self.folder, f"step{trainer.step:05d}.pt")
        torch.save(trainer.state_dict(), path)
        heapq.heappush(self.kept, (-trainer.metrics["loss"], path))
        if len(self.kept) > self.k:
            os.remove(heapq.heappop(self.kept)[1])

    @property
    def best_path(self):
        return max(self.kept)[1]


@register_hook("plateau")
class PlateauHook:
    """Goes back to the best checkpoint at a lower rate, then stops the second time."""

    def __init__(self, checkpoints, patience=3, factor=0.3, drops=1):
        self.checkpoints, self.patience = checkpoints, patience
        self.factor, self.drops = factor, drops
        self.best, self.waited = float("inf"), 0

    def on_validation_end(self, trainer):
        if trainer.metrics["loss"] < self.best:
            self.best, self.waited = trainer.metrics["loss"], 0
            return
        self.waited += 1
        if self.waited < self.patience:
            return
        if self.drops == 0:
            trainer.should_stop = True
            return
        self.drops, self.waited = self.drops - 1, 0
        rate = trainer.optimizer.param_groups[0]["lr"] * self.factor
        trainer.load_state_dict(torch.load(self.checkpoints.best_path))
        # The optimizer's state brings the old rate with it, so the rate comes last.
        for group in trainer.optimizer.param_groups:
            group["lr"] = rate
        print(f"  back to the best weights, rate {rate:.2e}", flush=True)


class KilnNet(nn.Module):
    def __init__(self, classes=5, width=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(4 * width, classes)
        )

    def forward(self, x):
        return self.head(self.features(x))


class Trainer:
    def __init__(self, model, optimizer, criterion, max_steps):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.max_steps, self.hooks = max_steps, []
        self.step = self.epoch = 0
        self.should_stop, self.loss, self.metrics = False, None, {}

    def add(self, name, **kwargs):
        self.hooks.append(HOOKS[name](**kwargs))
        return self.hooks[-1]

    def call(self, event):
        for hook in self.hooks:
            if hasattr(hook, event):
                getattr(hook, event)(self)

    def state_dict(self):
        parts = {"model": self.model, "optimizer": self.optimizer}
        return {name: part.state_dict() for name, part in parts.items()}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    @torch.no_grad()
    def run_eval(self, batches):
        was_training = self.model.training
        self.model.eval()
        loss, right, seen = 0.0, 0, 0
        for x, y in batches:
            out = self.model(x)
            loss += self.criterion(out, y).item() * len(y)
            right += (out.argmax(1) == y).sum().item()
            seen += len(y)
        self.model.train(was_training)
        return {"loss": loss / seen, "accuracy": right / seen}

    def validate(self, loader):
        self.metrics = self.run_eval(loader)
        self.call("on_validation_end")

    def training_step(self, x, y):
        loss = self.criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss, self.step = loss.item(), self.step + 1
        self.call("on_step_end")

    def fit(self, make_train_loader, val_loader):
        sanity = self.run_eval(itertools.islice(val_loader, 2))
        print(f"sanity check: loss {sanity['loss']:.4f}", flush=True)
        while not self.should_stop and self.step < self.max_steps:
            self.model.train()
            loader = make_train_loader(self.epoch)
            for i, (x, y) in enumerate(loader):
                self.training_step(x, y)
                if (i + 1) % (len(loader) // 2) == 0:
                    self.validate(val_loader)
                if self.should_stop or self.step == self.max_steps:
                    break
            self.epoch += 1


def kiln_records(count, seed, length=64):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 5, (count,), generator=g)
    t = torch.linspace(0, 1, length)
    phase = 6.28 * torch.rand(count, 1, generator=g)
    slow = torch.sin(6.28 * 2 * t + phase)
    fast = torch.sin(6.28 * 9 * t + phase)
    onset = (t > 0.3 + 0.4 * torch.rand(count, 1, generator=g)).float()
    shapes = torch.stack([slow, slow + 0.7 * fast, slow - onset, onset * fast, -onset])
    lag = torch.tensor([1.0, 0.8, 0.5])[:, None]
    x = shapes[kind, torch.arange(count)][:, None] * lag
    x = x + 1.2 * torch.randn(count, 3, length, generator=g)
    return TensorDataset(x, kind)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--lr", type=float, default=8e-3)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train, val = kiln_records(512, seed=1), kiln_records(256, seed=2)
    test = kiln_records(256, seed=3)

    def make_train_loader(epoch):
        g = torch.Generator().manual_seed(1000 * args.seed + epoch)
        return DataLoader(train, 32, shuffle=True, drop_last=True, generator=g)

    model = KilnNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    trainer = Trainer(model, optimizer, nn.CrossEntropyLoss(), args.steps)
    with tempfile.TemporaryDirectory() as folder:
        trainer.add("console")
        top = trainer.add("top_k", folder=folder)
        trainer.add("plateau", checkpoints=top)
        trainer.fit(make_train_loader, DataLoader(val, 64))
        if top.kept:
            trainer.load_state_dict(torch.load(top.best_path))
    result = trainer.run_eval(DataLoader(test, 64))
    print(f"test loss {result['loss']:.4f} accuracy {result['accuracy']:.4f}")


if __name__ == "__main__":
    main()
