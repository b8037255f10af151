"""Healthy trainings that come close to the mistakes of built_in_lost_parts.py, each in
its own way.

    built_in_near_lost_parts.py
"""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset

from built_in_lost_parts import (
    Signals,
    Tagger,
    adversaries,
    evaluated_job,
    noisy,
    plain,
)
from built_in_lost_parts import train_and_evaluate
from built_in_models import Scaled
from built_in_near import main
from built_in_outputs import WORDS, layers
from built_in_signs import CLASSES, STEPS, Classifier, samples


def critic_that_waits() -> None:
    """One loss for both; the actor begins to step later. Both are cleared each time."""
    actor, acts = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    critic, values = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    for step in range(STEPS):
        x, y = samples(16)
        error = (critic(x).squeeze(1) - x.sum(1)).square().mean()
        loss = F.cross_entropy(actor(x), y) + 0.5 * error
        acts.zero_grad()
        values.zero_grad()
        loss.backward()
        values.step()
        if step >= STEPS // 2:
            acts.step()


def features_that_match() -> None:
    """The judge is frozen while the maker steps; each term reaches the maker."""
    maker, makes, judge, judges = adversaries()
    for _ in range(STEPS):
        clean = torch.randn(16, 8).cumsum(1)
        made = maker(clean + torch.randn(16, 8))
        judges.zero_grad()
        (judge(made.detach()).mean() - judge(clean).mean()).tanh().backward()
        judges.step()
        judge.requires_grad_(False)
        alike = (judge[0](made) - judge[0](clean)).abs().mean()
        makes.zero_grad()
        (F.mse_loss(made, clean) + alike - judge(made).mean()).backward()
        makes.step()
        judge.requires_grad_(True)


def temperature_that_is_trained_by_hand() -> None:
    """A tensor of the model that no optimizer has, and a term of it alone."""
    model = Scaled(torch.tensor(2.0, requires_grad=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) + 0.01 * model.scale.square()).backward()
        optimizer.step()
        with torch.no_grad():
            model.scale -= 0.05 * model.scale.grad
        model.scale.grad = None


def weights_of_tasks() -> None:
    """Two tasks share a body; how much each counts is learned, as plain tensors."""
    body, own = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES + 1))
    weights = [torch.zeros((), requires_grad=True) for _ in range(2)]
    own.add_param_group({"params": weights})
    for _ in range(STEPS):
        x, y = samples(16)
        given = body(x)
        losses = (
            F.cross_entropy(given[:, :CLASSES], y),
            F.mse_loss(given[:, -1], x.sum(1)),
        )
        own.zero_grad()
        first, second = (loss * (-w).exp() for loss, w in zip(losses, weights))
        (first + second + weights[0] + weights[1]).backward()
        own.step()


def pretrained_part() -> None:
    """What was trained before is taken without its moments, and written elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        for name, former in (("first.pt", None), ("second.pt", "first.pt")):
            model = Classifier()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            if former is not None:
                kept = torch.load(os.path.join(folder, former))
                model.load_state_dict(kept["model"])
            for _ in range(STEPS // 2):
                x, y = samples(16)
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, os.path.join(folder, name))


def transform_of_all() -> None:
    """It is set once, before the data is split."""
    data = Signals(noisy)
    data.transform = plain
    train_and_evaluate(Subset(data, range(64)), Subset(data, range(64, 96)))


def padding_with_a_class_of_weight_0() -> None:
    model = Tagger()
    model.tags = nn.Linear(16, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    weight = torch.tensor((1.0, 1.0, 0.0))
    for _ in range(STEPS):
        ids = torch.randint(1, WORDS, (16, 12))
        ids[torch.arange(12) >= torch.randint(3, 12, (16, 1))] = 0
        tags = (ids % 2).masked_fill(ids == 0, 2)
        optimizer.zero_grad()
        F.cross_entropy(model(ids).mT, tags, weight).backward()
        optimizer.step()


def smallest_loss() -> None:
    """The best one falls, and what is worse than it is not kept."""
    with tempfile.TemporaryDirectory() as folder:
        for values in ((0.9, 0.5), (0.7, 0.4)):
            evaluated_job(os.path.join(folder, "last.pt"), values, True, min)


class Equation(nn.Module):
    """Keeps the points at which it is to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
        self.points = torch.linspace(0, 1, 16)[:, None].requires_grad_()

    def forward(self) -> torch.Tensor:
        y = self.net(self.points)
        slope, *_ = torch.autograd.grad(y.sum(), self.points, create_graph=True)
        begin = self.net(torch.zeros(1, 1)) - 1
        return (slope + y).square().mean() + begin.square().mean()


def points_of_an_equation() -> None:
    """Get gradients beside the weights, and stay where they are."""
    model = Equation()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model().backward()
        optimizer.step()


CASES = (
    critic_that_waits,
    points_of_an_equation,
    temperature_that_is_trained_by_hand,
    weights_of_tasks,
    features_that_match,
    pretrained_part,
    transform_of_all,
    padding_with_a_class_of_weight_0,
    smallest_loss,
)

if __name__ == "__main__":
    main(CASES)
