"""As built_in_signs.py: mistakes in what is kept of a training, as the best or
for a resume.

    built_in_bests.py [--right] [CASE...]
"""

import copy
import io

import torch
from torch.nn import functional as F

from built_in_signs import STEPS, Classifier, main, samples


class Keeper:
    """Keeps the weights of the best value so far."""

    def __init__(self, monitor: str, greatest: bool) -> None:
        self.monitor, self.greatest = monitor, greatest
        self.best = -float("inf") if greatest else float("inf")
        self.weights = None

    def offer(self, metrics, model) -> None:
        value = metrics[self.monitor]
        if value > self.best if self.greatest else value < self.best:
            self.best = value
            self.weights = copy.deepcopy(model.state_dict())


def evaluated(model, x, y) -> dict:
    with torch.no_grad():
        scores = model(x)
    return {
        "val_loss": F.cross_entropy(scores, y).item(),
        "val_acc": (scores.argmax(1) == y).float().mean().item(),
    }


def train_and_evaluate(evaluation_ends, steps: int = 2 * STEPS) -> None:
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held_out = samples(64)
    for step in range(steps):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % 2:
            evaluation_ends(evaluated(model, *held_out), model)


def loss_that_is_kept_at_its_greatest(right: bool) -> None:
    keeper = Keeper("val_loss", greatest=not right)
    train_and_evaluate(keeper.offer)


class Restorer(Keeper):
    """Puts the best weights back at the end."""

    def __init__(self, copies: bool) -> None:
        super().__init__("val_loss", greatest=False)
        self.copies = copies

    def offer(self, metrics, model) -> None:
        if metrics[self.monitor] < self.best:
            self.best = metrics[self.monitor]
            self.keep(model)

    def keep(self, model) -> None:
        if self.copies:
            self.weights = copy.deepcopy(model.state_dict())
        else:
            self.weights = model.state_dict()

    def end(self, model) -> None:
        model.load_state_dict(self.weights)


def weights_that_are_not_copied(right: bool) -> None:
    train_and_evaluate(Restorer(copies=right).offer)


class Saver:
    """Keeps the weights whenever an accuracy is above the best one."""

    def __init__(self, remembers: bool) -> None:
        self.remembers = remembers
        self.best_acc = 0.0

    def offer(self, metrics, model) -> None:
        if metrics["val_acc"] > self.best_acc:
            if self.remembers:
                self.best_acc = metrics["val_acc"]
            torch.save(model.state_dict(), io.BytesIO())


def best_that_stays(right: bool) -> None:
    saver = Saver(remembers=right)
    train_and_evaluate(saver.offer)


class Stopping:
    """Counts evaluations that are no better than the best one."""

    def __init__(self, patience: int, begins_anew: bool) -> None:
        self.patience, self.begins_anew = patience, begins_anew
        self.best_loss, self.waits = float("inf"), 0
        self.weights = None

    def offer(self, loss, model) -> bool:
        if loss < self.best_loss:
            self.best_loss = loss
            self.weights = copy.deepcopy(model.state_dict())
            if self.begins_anew:
                self.waits = 0
        else:
            self.waits += 1
        return self.waits >= self.patience


def patience_that_is_used_up(right: bool) -> None:
    """The fourth evaluation is worse, by what is added to it."""
    stopping = Stopping(patience=STEPS, begins_anew=right)
    losses = []

    def evaluation_ends(metrics, model) -> None:
        losses.append(10 if len(losses) == 3 else 5 - len(losses) / 10)
        stopping.offer(losses[-1], model)

    train_and_evaluate(evaluation_ends)


def save(model, *optimizers) -> None:
    states = [optimizer.state_dict() for optimizer in optimizers]
    torch.save({"model": model.state_dict(), "optimizers": states}, io.BytesIO())


def fit(model, optimizer) -> None:
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def optimizer_that_never_steps(right: bool) -> None:
    """The loop makes its own."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    own = optimizer if right else torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        fit(model, own)
        save(model, optimizer)


CASES = (
    loss_that_is_kept_at_its_greatest,
    weights_that_are_not_copied,
    best_that_stays,
    patience_that_is_used_up,
    optimizer_that_never_steps,
)

if __name__ == "__main__":
    main(CASES)
