"""Wide & deep model for a made-up customer table, trained with an early stopping callback."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def set_trainer(self, trainer):
        self.trainer = trainer

    def on_epoch_end(self, epoch, logs):
        pass

    def on_train_end(self, logs):
        pass


class History(Callback):
    def __init__(self):
        self.rows = []

    def on_epoch_end(self, epoch, logs):
        self.rows.append((epoch, logs["train_loss"], logs["val_loss"]))


class EarlyStopping(Callback):
    """Stop when val_loss has not improved for `patience` epochs and go back to the best weights."""

    def __init__(
        self, patience=6, min_delta=0.0, restore_best_weights=True, clone=False
    ):
        self.patience, self.min_delta = patience, min_delta
        self.restore_best_weights, self.clone = restore_best_weights, clone
        self.best, self.best_epoch, self.wait = float("inf"), 0, 0
        self.state_dict = None

    def on_epoch_end(self, epoch, logs):
        current = logs["val_loss"]
        if current < self.best - self.min_delta:
            self.best, self.best_epoch, self.wait = current, epoch, 0
            if self.restore_best_weights:
                self.state_dict = self.take(self.trainer.model)
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.trainer.early_stop = True

    def take(self, model):
        if self.clone:
            return {k: v.clone() for k, v in model.state_dict().items()}
        return model.state_dict()

    def on_train_end(self, logs):
        if self.restore_best_weights and self.state_dict is not None:
            print(
                f"Restoring model weights from the end of best epoch: {self.best_epoch}"
            )
            self.trainer.model.load_state_dict(self.state_dict)


class WideDeep(nn.Module):
    def __init__(self, cards, n_cont, dim=8):
        super().__init__()
        self.wide = nn.ModuleList(nn.Embedding(c, 1) for c in cards)
        self.embed = nn.ModuleList(nn.Embedding(c, dim) for c in cards)
        self.norm = nn.BatchNorm1d(n_cont)
        self.deep = nn.Sequential(
            nn.Linear(dim * len(cards) + n_cont, 128),
            nn.ReLU(),
            nn.Linear(128, 64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )

    def forward(self, cat, cont):
        wide = sum(e(cat[:, i]) for i, e in enumerate(self.wide))
        deep = torch.cat(
            [e(cat[:, i]) for i, e in enumerate(self.embed)] + [self.norm(cont)], dim=1
        )
        return (wide + self.deep(deep)).squeeze(1)


class Trainer:
    def __init__(self, model, callbacks, lr=3e-3, max_steps=None):
        self.model, self.callbacks, self.max_steps = model, callbacks, max_steps
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.criterion = nn.BCEWithLogitsLoss()
        self.early_stop, self.steps = False, 0
        for c in callbacks:
            c.set_trainer(self)

    def fit(self, train, val, batch_size, n_epochs):
        gen = torch.Generator().manual_seed(0)
        loader = DataLoader(
            TensorDataset(*train), batch_size=batch_size, shuffle=True, generator=gen
        )
        logs = {}
        for epoch in range(n_epochs):
            self.model.train()
            total = 0.0
            for cat, cont, y in loader:
                loss = self.criterion(self.model(cat, cont), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                self.steps += 1
                if self.steps >= self.max_steps:
                    self.early_stop = True
                    break
            logs = {"train_loss": total / len(loader), "val_loss": self.evaluate(val)}
            print(
                f"epoch {epoch + 1:2d}: train {logs['train_loss']:.4f}  valid {logs['val_loss']:.4f}"
            )
            for c in self.callbacks:
                c.on_epoch_end(epoch, logs)
            if self.early_stop:
                break
        for c in self.callbacks:
            c.on_train_end(logs)

    @torch.no_grad()
    def evaluate(self, data):
        self.model.eval()
        return self.criterion(self.model(data[0], data[1]), data[2]).item()


def customers(n, seed):
    g = torch.Generator().manual_seed(seed)
    cards = [12, 30, 7]
    cat = torch.stack([torch.randint(0, c, (n,), generator=g) for c in cards], dim=1)
    cont = torch.randn(n, 6, generator=g)
    score = (
        0.8 * torch.sin(cat[:, 0].float())
        + 0.6 * cont[:, 0] * cont[:, 1]
        + 0.3 * (cat[:, 2] % 3 - 1)
        + 0.4 * cont[:, 2]
    )
    y = (score + 0.8 * torch.randn(n, generator=g) > 0).float()
    return (cat, cont, y), cards


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--fixed", action="store_true")
    ap.add_argument("--prove", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(15)
    train, cards = customers(1280, 1)
    val, _ = customers(800, 2)

    stopper = EarlyStopping(patience=8)
    if args.fixed:
        stopper.clone = True
    history = History()
    trainer = Trainer(WideDeep(cards, 6), [history, stopper], max_steps=args.steps)
    trainer.fit(train, val, batch_size=64, n_epochs=40)
    final = trainer.evaluate(val)
    print(
        f"best epoch had valid {stopper.best:.4f}, the model handed over has {final:.4f}"
    )
    if args.prove:
        print("fault shows:", "yes" if abs(final - stopper.best) > 1e-4 else "no")


if __name__ == "__main__":
    main()
