"""Healthy trainings that come close to the mistakes of built_in_micro_batches.py, each in
its own way.

    built_in_near_micro_batches.py
"""

import torch
from torch import nn
from torch.nn import functional as F

from built_in_micro_batches import MovingAverage, micro_batches
from built_in_near import main
from built_in_signs import STEPS, Classifier, samples


def each_sample_clipped() -> None:
    """Gradients are added up elsewhere, as private trainings do."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        sums = [torch.zeros_like(one) for one in model.parameters()]
        for x, y in zip(*(part.split(1) for part in samples(4))):
            optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.02)
            for total, one in zip(sums, model.parameters()):
                total += one.grad
        for total, one in zip(sums, model.parameters()):
            one.grad = total / 4
        optimizer.step()


def norms_that_are_measured() -> None:
    """Of each micro-batch, without a bound."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in micro_batches(model):
            nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        nn.utils.clip_grad_norm_(model.parameters(), 0.02)
        optimizer.step()


def steps_left_out() -> None:
    """Some steps are left out, as a scaler does, and two averages are updated."""
    model = Classifier()
    averages = [MovingAverage(model), MovingAverage(model)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(2 * STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if step > 3 and step % 4:
            optimizer.step()
        for one in averages:
            one.update(model)


def momentum_by_hand() -> None:
    """The gradients of the steps before count less and less."""
    model = Classifier()
    for _ in range(STEPS):
        x, y = samples(16)
        F.cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.05)
            parameter.grad.mul_(0.9)


CASES = (
    each_sample_clipped,
    norms_that_are_measured,
    steps_left_out,
    momentum_by_hand,
)

if __name__ == "__main__":
    main(CASES)
