"""Healthy trainings that come close to the mistakes of built_in_metrics.py, each in its
own way.

    built_in_near_metrics.py
"""

from collections import deque

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from built_in_metrics import EPOCHS, Accuracy, Fields, evaluate, learn_rows, segment
from built_in_near import main
from built_in_signs import CLASSES, Classifier, samples, train


class ResetsItself(Accuracy):
    def compute(self) -> float:
        value = super().compute()
        self.reset()
        return value


def metric_that_resets_itself() -> None:
    """And one of the training that runs on, and is asked now and then."""
    model, metric, running = Classifier(), ResetsItself(), Accuracy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    trained = DataLoader(TensorDataset(*samples(64)), 16, shuffle=True)
    loader = DataLoader(TensorDataset(*samples(64)), 16)
    for _ in range(EPOCHS):
        for place, (x, y) in enumerate(trained):
            scores = model(x)
            optimizer.zero_grad()
            F.cross_entropy(scores, y).backward()
            optimizer.step()
            with torch.no_grad():
                running.update(scores, y)
            if place % 2 == 1:
                running.compute()
        evaluate(model, loader, metric)


def one_number_for_two_sets() -> None:
    model, metric = Classifier(), Accuracy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loaders = [DataLoader(TensorDataset(*samples(48)), 16) for _ in range(2)]
    for _ in range(EPOCHS):
        train(model, F.cross_entropy, optimizer)
        metric.reset()
        for loader in loaders:
            evaluate(model, loader, metric)
    train(model, F.cross_entropy, optimizer)


class Steps:
    """Each is drawn with what lies around it in its episode."""

    def __init__(self) -> None:
        self.episode: list[torch.Tensor] = []
        self.kept: list[tuple[list[torch.Tensor], int]] = []
        self.last: deque[torch.Tensor] = deque([torch.zeros(8)] * 16, maxlen=16)
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def record(self, state: torch.Tensor) -> None:
        self.before.append((self.last[-1], state.clone()))
        self.last.append(state.clone())
        self.episode.append(state.clone())
        self.kept.append((self.episode, len(self.episode) - 1))


def steps_with_their_episode() -> None:
    """The state is written in place, and copied."""
    model, steps, state = Classifier(), Steps(), torch.zeros(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        steps.record(state.copy_(torch.randn(8)))
        drawn = [steps.kept[i] for i in torch.randint(len(steps.kept), (16,))]
        x = torch.stack([episode[place] for episode, place in drawn])
        optimizer.zero_grad()
        F.cross_entropy(model(x), x[:, :CLASSES].argmax(1)).backward()
        optimizer.step()


def shares_of_classes() -> None:
    """Interpolated is what each class has of a pixel; and maps keep their values."""
    segment(Fields("bilinear", hot=True))
    segment(Fields("nearest"))


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return self.body(torch.cat([x, time], 1))


def times_of_a_width() -> None:
    """Each sample has one time, which is repeated beside it."""
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(8):
        x, time = torch.randn(16, 8), torch.rand(16, 1).repeat(1, 8)
        noise = torch.randn_like(x)
        optimizer.zero_grad()
        F.mse_loss(model(x + time * noise, time), noise).backward()
        optimizer.step()


def rows_that_begin_alike() -> None:
    """Some samples are one number repeated, as stacks of frames are at first; and masks
    and classes that are written out are whole numbers."""
    rows = torch.randn(96, 8)
    rows[::2] = rows[::2, :1]
    learn_rows(rows)
    learn_rows(torch.randint(CLASSES, (96, 1)).float().repeat(1, 8))


CASES = (
    metric_that_resets_itself,
    one_number_for_two_sets,
    steps_with_their_episode,
    shares_of_classes,
    times_of_a_width,
    rows_that_begin_alike,
)

if __name__ == "__main__":
    main(CASES)
