"""As built_in_signs.py: averages and shares of another thing than is meant. A copy that
follows without its statistics, a mean that is taken for a sum, a last group that is
divided by the number of a whole one, a layer's share of the rate that is taken in each
step, an average that is computed and not stored.

    built_in_averages.py [--right] [CASE...]
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from built_in_outputs import layers
from built_in_sequences import Writer, sentences
from built_in_signs import CLASSES, STEPS, Classifier, main, samples


def normed():
    model, optimizer = layers(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)
    )
    return model, optimizer, copy.deepcopy(model).requires_grad_(False)


@torch.no_grad()
def follow(copies, sources) -> None:
    for mine, other in zip(copies, sources):
        if mine.is_floating_point():
            mine.lerp_(other, 0.1)


def teach(update, prepare=nn.Module.eval) -> None:
    """A student learns from labels and from a copy of itself."""
    student, optimizer, teacher = normed()
    for _ in range(2 * STEPS):
        x, y = samples(16)
        prepare(teacher)
        with torch.no_grad():
            taught = teacher(x)
        optimizer.zero_grad()
        scores = student(x)
        (F.cross_entropy(scores, y) + 0.1 * F.mse_loss(scores, taught)).backward()
        optimizer.step()
        update(student, teacher)


def copy_without_statistics(right: bool) -> None:
    def update(student, teacher) -> None:
        follow(teacher.parameters(), student.parameters())
        if right:
            follow(teacher.buffers(), student.buffers())

    teach(update)


class WeightAverage:
    def __init__(self, model, average) -> None:
        self.model, self.average = model, average

    @torch.no_grad()
    def update(self) -> None:
        for mine, other in zip(self.average.parameters(), self.model.parameters()):
            mine.copy_(0.9 * mine + 0.1 * other)


class AverageOfNames(WeightAverage):
    @torch.no_grad()
    def update(self) -> None:
        for mine, other in zip(self.average.parameters(), self.model.parameters()):
            mine = 0.9 * mine + 0.1 * other


def average_without_a_copy(right: bool) -> None:
    model = Classifier()
    average = copy.deepcopy(model).requires_grad_(False) if right else model
    train_with(WeightAverage(model, average))


def average_that_is_not_stored(right: bool) -> None:
    model = Classifier()
    average = copy.deepcopy(model).requires_grad_(False)
    train_with((WeightAverage if right else AverageOfNames)(model, average))


def train_with(averages) -> None:
    model = averages.model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        averages.update()


def means_taken_for_sums(right: bool) -> None:
    """Of likelihoods of texts: their means are divided by the lengths again."""
    model = Writer(causal=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y, lengths = texts()
        found = F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        real = torch.arange(x.shape[1]) < lengths[:, None]
        means = (found * real).sum(1) / lengths
        chosen = means[:4] if right else means[:4] / lengths[:4]
        optimizer.zero_grad()
        (chosen.mean() + 0.1 * F.softplus(means[:4] - means[4:]).mean()).backward()
        optimizer.step()


def texts():
    """Words, the next words, and how many of them are real."""
    x = sentences()
    lengths = torch.arange(len(x)) % 4 + 2
    return x[:, :-1], x[:, 1:], lengths


def last_group_divided_by_all(right: bool) -> None:
    """Ten micro-batches an epoch, in steps of four."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        for group in (4, 4, 2):
            optimizer.zero_grad()
            for _ in range(group):
                x, y = samples(16)
                (F.cross_entropy(model(x), y) / (group if right else 4)).backward()
            optimizer.step()


def shares_taken_in_each_step(right: bool) -> None:
    """The body learns at a quarter of the head's rate."""
    model = Classifier()
    groups = [{"params": part.parameters()} for part in (model.body, model.head)]
    optimizer = torch.optim.SGD(groups, lr=0.05)
    for step in range(STEPS):
        for group, share in zip(optimizer.param_groups, (0.25, 1.0)):
            if step == 0 or not right:
                group["lr"] *= share
            elif step == STEPS // 2:
                group["lr"] *= 0.5
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


CASES = (
    copy_without_statistics,
    average_without_a_copy,
    average_that_is_not_stored,
    means_taken_for_sums,
    last_group_divided_by_all,
    shares_taken_in_each_step,
)

if __name__ == "__main__":
    main(CASES)
