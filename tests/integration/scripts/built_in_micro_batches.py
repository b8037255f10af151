"""As built_in_signs.py: what belongs to a step is done for each of its micro-batches, or
not at all where the program makes its steps itself.

    built_in_micro_batches.py [--right] [CASE...]
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from built_in_signs import STEPS, Classifier, main, samples

MICRO_BATCHES = 4


def micro_batches(model):
    """Says of each, after its backward, whether it is the last one."""
    for number in range(1, MICRO_BATCHES + 1):
        x, y = samples(16)
        (F.cross_entropy(model(x), y) / MICRO_BATCHES).backward()
        yield number == MICRO_BATCHES


def clipped_again_and_again(right: bool) -> None:
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for is_last in micro_batches(model):
            if is_last or not right:
                nn.utils.clip_grad_norm_(model.parameters(), 0.02)
        optimizer.step()


class MovingAverage:
    def __init__(self, model) -> None:
        self.average = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model) -> None:
        for mine, other in zip(self.average.parameters(), model.parameters()):
            mine.lerp_(other, 0.1)


def averaged_too_often(right: bool) -> None:
    model = Classifier()
    moving = MovingAverage(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        for is_last in micro_batches(model):
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
            if is_last or not right:
                moving.update(model)


def steps_by_hand(right: bool) -> None:
    """Gradients are never cleared."""
    model = Classifier()
    for _ in range(STEPS):
        for is_last in micro_batches(model):
            if is_last:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.05 * parameter.grad
        if right:
            model.zero_grad()


CASES = (clipped_again_and_again, averaged_too_often, steps_by_hand)

if __name__ == "__main__":
    main(CASES)
