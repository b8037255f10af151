"""A cookie-cutter project: trains a regressor from a config, keeps the best weights by
the validation loss, loads them at the end and tests them.

After cookiecutter-pyml, issue 119.
"""

import argparse
import os
import tempfile

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {
    "size": 64,
    "batch_size": 32,
    "max_epoch": 12,
    "patience": 50,
    "optimizer": {"lr": 2e-3, "weight_decay": 1e-4},
    "best_checkpoint": {"monitor": "val_loss"},
}


def wines(count, seed):
    """Quality of wine by eleven measurements, not linear in them."""
    weights = torch.randn(11, 4, generator=torch.Generator().manual_seed(5))
    generator = torch.Generator().manual_seed(seed)
    measured = torch.randn(count, 11, generator=generator)
    hidden = torch.tanh(measured @ weights)
    quality = hidden.sum(1) + hidden[:, 0] * hidden[:, 1]
    quality = quality + 0.2 * torch.randn(count, generator=generator)
    return TensorDataset(measured, quality)


class Callback:
    def on_validation_end(self, trainer, metrics):
        pass


class BestCheckpoint(Callback):
    def __init__(self, folder, monitor, mode="max"):
        self.path = os.path.join(folder, "best.pt")
        self.monitor, self.sign = monitor, 1 if mode == "max" else -1
        self.best = -float("inf")

    def on_validation_end(self, trainer, metrics):
        value = self.sign * metrics[self.monitor]
        if value > self.best:
            self.best = value
            torch.save(trainer.model.state_dict(), self.path)
            print(f"epoch {trainer.epoch} is the best so far, saved")


class EarlyStopping(Callback):
    def __init__(self, monitor, patience):
        self.monitor, self.patience = monitor, patience
        self.best, self.waited = float("inf"), 0

    def on_validation_end(self, trainer, metrics):
        if metrics[self.monitor] < self.best:
            self.best, self.waited = metrics[self.monitor], 0
        else:
            self.waited += 1
            trainer.should_stop = self.waited >= self.patience


class Trainer:
    def __init__(self, model, callbacks, config):
        self.model, self.callbacks, self.config = model, callbacks, config
        self.optimizer = torch.optim.AdamW(model.parameters(), **config["optimizer"])
        self.epoch, self.step, self.should_stop = 0, 0, False

    def fit(self, train, valid):
        while self.epoch < self.config["max_epoch"] and not self.should_stop:
            self.model.train()
            for measured, quality in train:
                loss = F.mse_loss(self.model(measured)[:, 0], quality)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                print(f"step {self.step} loss {loss.item():.4f}", flush=True)
                self.step += 1
            metrics = {"val_loss": self.evaluate(valid)}
            for callback in self.callbacks:
                callback.on_validation_end(self, metrics)
            self.epoch += 1

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        total = 0.0
        for measured, quality in loader:
            error = self.model(measured)[:, 0] - quality
            total += error.square().sum().item()
        return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    size, batch_size = CONFIG["size"], CONFIG["batch_size"]
    train = DataLoader(wines(160, args.seed), batch_size, shuffle=True)
    valid = DataLoader(wines(200, args.seed + 1), 200)
    test = DataLoader(wines(1000, args.seed + 2), 500)
    model = nn.Sequential(
        nn.Linear(11, size), nn.ReLU(), nn.Dropout(0.1), nn.Linear(size, size),
        nn.ReLU(), nn.Linear(size, 1),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        keep = dict(CONFIG["best_checkpoint"])
        if args.fixed:
            keep["mode"] = "min"
        best = BestCheckpoint(folder, **keep)
        stopping = EarlyStopping("val_loss", CONFIG["patience"])
        trainer = Trainer(model, [best, stopping], CONFIG)
        trainer.fit(train, valid)
        model.load_state_dict(torch.load(best.path, weights_only=True))
    print(f"test loss of the best weights {trainer.evaluate(test):.4f}")
    if args.prove:
        gap = trainer.evaluate(valid) - stopping.best
        print(f"the lowest validation loss is lower by {gap:.4f}")
        print("fault shows:", "yes" if gap > 1e-3 else "no", flush=True)


if __name__ == "__main__":
    main()
