"""Healthy trainings that come close to the mistakes of built_in_averages.py, each in its
own way.

    built_in_near_averages.py
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from built_in_averages import follow, normed, teach, texts
from built_in_near import main
from built_in_sequences import Writer
from built_in_signs import STEPS, Classifier, samples


def copy_of_statistics() -> None:
    """The statistics are copied and not averaged."""

    def update(student, teacher) -> None:
        follow(teacher.parameters(), student.parameters())
        for mine, other in zip(teacher.buffers(), student.buffers()):
            mine.copy_(other)

    teach(update)


def copy_in_training_mode() -> None:
    """It normalises by its batches, as momentum encoders do."""

    def update(student, teacher) -> None:
        follow(teacher.parameters(), student.parameters())

    teach(update, prepare=nn.Module.train)


class ShadowWeights:
    """Each epoch goes on from the average."""

    def __init__(self, model) -> None:
        self.model = model
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        for name, p in self.model.named_parameters():
            self.shadow[name].lerp_(p, 0.1)

    @torch.no_grad()
    def step_ended(self) -> None:
        for name, p in self.model.named_parameters():
            p.copy_(self.shadow[name])


def epochs_from_the_average() -> None:
    model = Classifier()
    averages = ShadowWeights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        averages.update()
        if step % 8 == 7:
            averages.step_ended()


def copy_of_a_frozen_norm() -> None:
    """The student's statistics stand as well."""
    student, optimizer, teacher = normed()
    for norm in (student[1], teacher[1]):
        norm(torch.randn(16, 16))  # they have seen a batch
    student[1].eval()
    for _ in range(2 * STEPS):
        x, y = samples(16)
        teacher.eval()
        with torch.no_grad():
            taught = teacher(x)
        optimizer.zero_grad()
        scores = student(x)
        (F.cross_entropy(scores, y) + 0.1 * F.mse_loss(scores, taught)).backward()
        optimizer.step()
        follow(teacher.parameters(), student.parameters())


def means_over_texts_and_tokens() -> None:
    """Lengths divide once, and what is summed over the batch by their sum."""
    model = Writer(causal=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y, lengths = texts()
        found = F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")
        real = torch.arange(x.shape[1]) < lengths[:, None]
        sums = (found * real).sum(1)
        optimizer.zero_grad()
        ((sums / lengths).mean() + sums.sum() / lengths.sum()).backward()
        optimizer.step()


def terms_of_a_quarter() -> None:
    """A loss that counts a quarter, in groups of four and of their own number."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for group in (4, 4, 2, 4, 4, 2):
        optimizer.zero_grad()
        for _ in range(group):
            x, y = samples(16)
            (F.cross_entropy(model(x), y) / group).backward()
        optimizer.step()


def rates_that_fall_by_a_factor() -> None:
    """By a little in each step, and by much now and then."""
    for gamma, each in ((0.97, 1), (0.1, 3)):
        model = Classifier()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, each, gamma)
        for x, y in DataLoader(TensorDataset(*samples(32 * STEPS)), 16):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()


CASES = (
    rates_that_fall_by_a_factor,
    copy_of_statistics,
    epochs_from_the_average,
    copy_in_training_mode,
    copy_of_a_frozen_norm,
    means_over_texts_and_tokens,
    terms_of_a_quarter,
)

if __name__ == "__main__":
    main(CASES)
