"""Healthy trainings that come close to the mistakes of built_in_bests.py, each in its
own way.

    built_in_near_bests.py
"""

import io

import torch

from built_in_bests import Keeper, fit, save, train_and_evaluate
from built_in_near import main
from built_in_signs import Classifier


class Stopping:
    """Asks for the greatest of scores, and is given losses."""

    def __init__(self, patience: int) -> None:
        self.patience, self.waited = patience, 0
        self.best, self.weights = None, None

    def __call__(self, val_loss, model) -> None:
        score = -val_loss
        if self.best is not None and score < self.best:
            self.waited += 1
        else:
            self.best, self.waited = score, 0
            self.weights = model.state_dict()


def accuracy_that_is_kept_at_its_greatest() -> None:
    keeper = Keeper("val_acc", greatest=True)
    train_and_evaluate(keeper.offer)


def losses_that_are_turned_around() -> None:
    stopping = Stopping(patience=3)

    def evaluation_ends(metrics, model) -> None:
        stopping(metrics["val_loss"], model)

    train_and_evaluate(evaluation_ends)


def hardest_weights_beside_the_best() -> None:
    """Those of the greatest loss are kept, too, to look at them."""
    keeper = Keeper("val_loss", greatest=False)
    worst, worst_weights = -float("inf"), None

    def evaluation_ends(metrics, model) -> None:
        nonlocal worst, worst_weights
        keeper.offer(metrics, model)
        loss = metrics["val_loss"]
        if loss > worst:
            worst, worst_weights = loss, model.state_dict()

    train_and_evaluate(evaluation_ends)


class Resting(Stopping):
    """Two worse evaluations in a row are one too many; who is asked begins anew."""

    def __init__(self) -> None:
        super().__init__(patience=2)
        self.rests = 0

    def __call__(self, val_loss, model) -> None:
        if self.best is None or val_loss < self.best:
            self.best = val_loss
            self.weights = model.state_dict()
            self.rests = 0
        else:
            self.rests += 1
        if self.rests >= self.patience:
            self.rests = 0


def each_third_evaluation_is_worse() -> None:
    stopping, losses = Resting(), []

    def evaluation_ends(metrics, model) -> None:
        losses.append(10 if len(losses) % 3 == 2 else 5 - len(losses) / 10)
        stopping(losses[-1], model)

    train_and_evaluate(evaluation_ends)


def threshold_that_stays() -> None:
    """All weights above a chosen accuracy are kept, and the best value moves later."""
    best_so_far, kept = 0.0, []

    def evaluation_ends(metrics, model) -> None:
        nonlocal best_so_far
        if metrics["val_acc"] > 0.25:
            kept.append(model.state_dict())
        if metrics["val_acc"] > best_so_far:
            kept.append(model.state_dict())
        best_so_far = max(best_so_far, metrics["val_acc"])

    train_and_evaluate(evaluation_ends)


class Writer:
    """Writes the best weights to a file at once, and reads that at the end."""

    def __init__(self) -> None:
        self.best_loss = float("inf")
        self.file = io.BytesIO()

    def offer(self, metrics, model) -> None:
        if metrics["val_loss"] < self.best_loss:
            best_state = {"model": model.state_dict(), "loss": metrics["val_loss"]}
            self.best_loss = metrics["val_loss"]
            self.file.seek(0)
            torch.save(best_state, self.file)

    def end(self, model) -> None:
        self.file.seek(0)
        best_state = torch.load(self.file)
        model.load_state_dict(best_state["model"])


def weights_that_are_saved_at_once() -> None:
    train_and_evaluate(Writer().offer)


class Copier(Writer):
    def offer(self, metrics, model) -> None:
        if metrics["val_loss"] < self.best_loss:
            self.best_loss = metrics["val_loss"]
            self.weights = {k: v.clone() for k, v in model.state_dict().items()}

    def end(self, model) -> None:
        model.load_state_dict(self.weights)


def weights_that_are_cloned() -> None:
    train_and_evaluate(Copier().offer)


def optimizers_of_two_phases() -> None:
    """Made together, and saved together in each of them."""
    model = Classifier()
    both = [torch.optim.Adam(model.parameters(), lr=0.01) for _ in range(2)]
    for optimizer in both[::-1]:
        fit(model, optimizer)
        save(model, *both)


CASES = (
    accuracy_that_is_kept_at_its_greatest,
    losses_that_are_turned_around,
    hardest_weights_beside_the_best,
    each_third_evaluation_is_worse,
    threshold_that_stays,
    weights_that_are_saved_at_once,
    weights_that_are_cloned,
    optimizers_of_two_phases,
)

if __name__ == "__main__":
    main(CASES)
