"""Healthy trainings that come close to the mistakes of built_in_data.py, each in another
way than its right variant.

    built_in_near_data.py
"""

import pathlib
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split

from built_in_data import END, PAD, Tuned, Varied
from built_in_data import fit, job, learn_texts, padded, texts, validate
from built_in_near import main
from built_in_signs import CLASSES, Classifier, samples


def ends_that_are_padding() -> None:
    """The end token is the padding, and the first one of each row is a target."""

    def collate(rows):
        batch = padded(rows, END, masked=END)
        for labels, row in zip(batch["labels"], rows):
            labels[len(row) - 1] = END
        return batch

    learn_texts(collate)


def mean_over_positions() -> None:
    """Of words alone: the vector of the padding is zero."""
    words, head = nn.Embedding(PAD + 1, 16, padding_idx=PAD), nn.Linear(16, CLASSES)
    model = nn.ModuleDict({"words": words, "head": head})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        ids = nn.utils.rnn.pad_sequence(texts(8), True, padding_value=PAD)
        optimizer.zero_grad()
        scores = model["head"](model["words"](ids).mean(1))
        F.cross_entropy(scores, ids[:, 0] % CLASSES).backward()
        optimizer.step()


def loss_of_rounded_scores() -> None:
    """A model in bfloat16, whose scores are cast up for the loss."""
    model = Classifier(dtype=torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(8):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x.bfloat16()).float(), y).backward()
        optimizer.step()


def whole_in_place_of_a_part() -> None:
    """Everything is trained with in the end, when nothing is to be chosen any more."""
    data = TensorDataset(*samples(64))
    part, held_out = random_split(data, [48, 16])
    model = Classifier()
    fit(model, part)
    validate(model, held_out)
    fit(Classifier(), data)


def noise_in_the_validation() -> None:
    """Held-out samples of their own, made noisy to see what noise does."""
    model = Classifier()
    for _ in range(2):
        fit(model, TensorDataset(*samples(48)))
        validate(model, Varied(16))


def statistics_of_a_frozen_body() -> None:
    """The body follows another one, as its statistics do."""
    model, slow = Tuned(), Tuned()
    slow.load_state_dict(model.state_dict())
    pair = nn.ModuleDict({"model": model, "slow": slow.requires_grad_(False)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        x, y = samples(16)
        optimizer.zero_grad()
        taught = pair["slow"](x)
        scores = pair["model"](x)
        (F.cross_entropy(scores, y) + 0.1 * F.mse_loss(scores, taught)).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(slow.parameters(), model.parameters()):
                mine.lerp_(other, 0.1)


def jobs_without_moments() -> None:
    """A model is tuned, and the result goes to a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        first, tuned = pathlib.Path(folder, "base.pt"), pathlib.Path(folder, "tuned.pt")
        job(first, first, keeps_state=False)
        for _ in range(2):
            job(first, tuned, keeps_state=False)


def tasks_in_turn() -> None:
    """What is remembered of each is measured, and how the next one will begin."""
    data = TensorDataset(*samples(96))
    tasks = [range(n, n + 32) for n in (0, 32, 64)]
    model = Classifier()
    for number, task in enumerate(tasks):
        fit(model, Subset(data, task[:24]))
        for other in tasks[: number + 1]:
            validate(model, Subset(data, other[24:]))


def folds_of_a_table() -> None:
    """Each is a data set of its own, and a model of its own goes on with it later."""
    x, y = samples(60)
    models = [Classifier() for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    for _ in range(2):
        for fold, (model, optimizer) in enumerate(zip(models, optimizers)):
            held_out = torch.arange(60) // 20 == fold
            rest = TensorDataset(x[~held_out], y[~held_out])
            for inputs, targets in DataLoader(rest, batch_size=16, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
            validate(model, TensorDataset(x[held_out], y[held_out]))


CASES = (
    folds_of_a_table,
    ends_that_are_padding,
    mean_over_positions,
    loss_of_rounded_scores,
    whole_in_place_of_a_part,
    tasks_in_turn,
    noise_in_the_validation,
    statistics_of_a_frozen_body,
    jobs_without_moments,
)


if __name__ == "__main__":
    main(CASES)
