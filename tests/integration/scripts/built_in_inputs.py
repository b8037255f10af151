"""As built_in_signs.py: mistakes in how data is scaled, split, packed and weighed, in
terms of a loss, and in what is evaluated.

    built_in_inputs.py [--right] [CASE...]
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset
from torch.utils.data import WeightedRandomSampler, random_split

from built_in_outputs import PAD, WORDS, layers
from built_in_signs import CLASSES, main, samples

STEPS = 6


def fit(model, optimizer, data, evaluated=None, evaluates=None, epochs=2) -> None:
    """Regression; evaluates: what is evaluated in place of the model."""
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        if evaluated is not None:
            network = (evaluates or model).eval()
            with torch.no_grad():
                for x, y in DataLoader(evaluated, batch_size=16):
                    network(x)
            model.train()


def regression(width: int):
    return layers(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 1))


def padded_texts(lengths):
    """Tokens [texts, positions], which padding fills up."""
    ids = torch.randint(1, WORDS, (len(lengths), 7))
    ids[torch.arange(7) >= lengths[:, None]] = PAD
    return ids


def text_batches():
    """Tokens, lengths, and whether the first token is odd."""
    lengths = torch.randint(2, 8, (48,))
    ids = padded_texts(lengths)
    data = TensorDataset(ids, lengths, ids[:, 0] % 2)
    return DataLoader(data, batch_size=12, shuffle=True)


def reader():
    """Embedding, recurrence, head; and their optimizer."""
    return layers(
        nn.Embedding(WORDS, 8, padding_idx=PAD), nn.GRU(8, 8), nn.Linear(8, 2)
    )


def lengths_of_other_texts(right: bool) -> None:
    """Lengths are sorted, rows are not."""
    (words, layer, head), optimizer = reader()
    for _ in range(STEPS):
        lengths = torch.tensor([3, 7, 5, 2, 6, 4])
        ids = padded_texts(lengths)
        order = lengths.argsort(descending=True)
        rows = ids[order] if right else ids
        packed = pack_padded_sequence(words(rows).transpose(0, 1), lengths[order])
        optimizer.zero_grad()
        F.cross_entropy(head(layer(packed)[1][0]), rows[:, 0] % 2).backward()
        optimizer.step()


def labels_of_other_texts(right: bool) -> None:
    """Texts are sorted by length to be packed, labels are not."""
    (words, layer, head), optimizer = reader()
    for rows, sizes, y in text_batches():
        order = sizes.argsort(descending=True)
        vectors = words(rows[order]).transpose(0, 1)
        state = layer(pack_padded_sequence(vectors, sizes[order]))[1][0]
        optimizer.zero_grad()
        F.cross_entropy(head(state), y[order] if right else y).backward()
        optimizer.step()


def weights_of_frequent_classes(right: bool) -> None:
    """Squares of the numbers of samples are taken for weights."""
    y = torch.tensor([0] * 32 + [1] * 9 + [2] * 4 + [3] * 3)
    counts = torch.bincount(y).float()
    weight = counts.sum() / counts if right else counts.square() / 48
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(48, 8)), y, weight=weight).backward()
        optimizer.step()


def weights_that_are_numbers(right: bool) -> None:
    """Numbers of samples are, in enough targets to be sure."""
    y = torch.tensor([0] * 600 + [1] * 200 + [2] * 120 + [3] * 80)
    counts = torch.bincount(y).float()
    weight = counts.sum() / counts if right else counts / counts.sum()
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(1000, 8)), y, weight=weight).backward()
        optimizer.step()


def balanced_batches():
    """Which draw all classes equally often, and what each class was drawn with."""
    labels = torch.tensor([0] * 50 + [1] * 150 + [2] * 240 + [3] * 160)
    inverse = len(labels) / torch.bincount(labels).double()
    sampler = WeightedRandomSampler(inverse[labels], len(labels))
    data = TensorDataset(torch.randn(len(labels), 8), labels)
    return DataLoader(data, 200, sampler=sampler), inverse.float()


def fit_balanced(loader, weight) -> None:
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y, weight=weight).backward()
        optimizer.step()


def classes_balanced_twice(right: bool) -> None:
    loader, inverse = balanced_batches()
    fit_balanced(loader, None if right else inverse)


def penalty_without_a_graph(right: bool) -> None:
    """A critic's gradients are to have the norm 1."""
    model, optimizer = regression(8)
    for _ in range(STEPS):
        x = torch.randn(16, 8, requires_grad=True)
        scores = model(x)
        [slope] = torch.autograd.grad(
            scores.sum(), x, create_graph=right, retain_graph=True
        )
        penalty = (slope.norm(dim=1) - 1).square().mean()
        optimizer.zero_grad()
        (scores.square().mean() + 10 * penalty).backward()
        optimizer.step()


def pictures_of_bytes(right: bool) -> None:
    """Nobody divides by 255."""
    model, optimizer = layers(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)
    )
    for _ in range(STEPS):
        x = torch.randint(0, 256, (16, 3, 8, 8)).float()
        optimizer.zero_grad()
        y = torch.randint(0, CLASSES, (16,))
        F.cross_entropy(model(x / 255 if right else x), y).backward()
        optimizer.step()


def pictures_divided_twice(right: bool) -> None:
    """The data set divides by 255, and so does the loop."""
    model, optimizer = layers(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)
    )
    for _ in range(STEPS):
        x = torch.randint(0, 256, (16, 3, 8, 8)) / 255
        optimizer.zero_grad()
        y = torch.randint(0, CLASSES, (16,))
        F.cross_entropy(model(x if right else x / 255), y).backward()
        optimizer.step()


def overlap(predicted, mask):
    """1 - Dice."""
    shared, whole = (predicted * mask).sum((1, 2, 3)), (predicted + mask).sum((1, 2, 3))
    return 1 - ((2 * shared + 1) / (whole + 1)).mean()


def overlap_of_scores(right: bool) -> None:
    """The sigmoid is in another loss alone."""
    model, optimizer = layers(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1)
    )
    for _ in range(STEPS):
        x = torch.randn(8, 1, 8, 8)
        mask = (x > 0.5).float()
        scores = model(x)
        loss = F.binary_cross_entropy_with_logits(scores, mask)
        optimizer.zero_grad()
        (loss + overlap(scores.sigmoid() if right else scores, mask)).backward()
        optimizer.step()


def mean_over_classes(right: bool) -> None:
    """The divergence from a teacher is divided by the number of classes."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    teacher = nn.Linear(8, CLASSES).requires_grad_(False)
    for _ in range(STEPS):
        x = torch.randn(16, 8)
        shares = teacher(x).softmax(1)
        optimizer.zero_grad()
        logarithms = F.log_softmax(model(x), 1)
        reduction = "batchmean" if right else "mean"
        F.kl_div(logarithms, shares, reduction=reduction).backward()
        optimizer.step()


def train_adversaries(generator, of_generator, critic, of_critic, schedules) -> None:
    for _ in range(STEPS):
        made = generator(torch.randn(16, 8))
        of_critic.zero_grad()
        critic(made.detach()).square().mean().backward()
        of_critic.step()
        of_generator.zero_grad()
        (1 - critic(made)).square().mean().backward()
        of_generator.step()
        for schedule in schedules:
            schedule.step()


def two_schedules_for_one(right: bool) -> None:
    """The critic's schedule is made for the generator's optimizer."""
    generator, of_generator = regression(8)
    critic, of_critic = layers(nn.Linear(1, 1))
    schedules = [
        torch.optim.lr_scheduler.StepLR(one, 2)
        for one in (of_generator, of_critic if right else of_generator)
    ]
    train_adversaries(generator, of_generator, critic, of_critic, schedules)


def copy_that_stands_still(right: bool) -> None:
    """An average is evaluated, and its update was forgotten."""
    model, optimizer = regression(8)
    average = copy.deepcopy(model)
    x = torch.randn(80, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    train, held_out = Subset(data, range(48)), Subset(data, range(48, 80))
    for _ in range(4):
        fit(model, optimizer, train, held_out, average, epochs=1)
        if right:
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters()):
                    mean.lerp_(weight, 0.5)
    fit(model, optimizer, train, epochs=1)


def windows_of_one_series(right: bool) -> None:
    """Neighbouring windows are drawn apart at random."""
    series = torch.randn(140).cumsum(0)
    windows = series.unfold(0, 13, 1)
    data = TensorDataset(windows[:, :12], windows[:, 12:])
    if right:
        parts = Subset(data, range(96)), Subset(data, range(96, 128))
    else:
        parts = random_split(data, [96, 32])
    fit(*regression(12), *parts)


def scaled_before_the_split(right: bool) -> None:
    """Means and deviations are those of all rows."""
    rows, target = 3 * torch.randn(96, 6) + 2, torch.randn(96, 1)
    known = rows[:64] if right else rows
    data = TensorDataset((rows - known.mean(0)) / known.std(0), target)
    parts = Subset(data, range(64)), Subset(data, range(64, 96))
    fit(*regression(6), *parts)


class Blobs(Dataset):
    """Pictures [1, 12, 12] with one bright row of pixels each, and where it is."""

    def __init__(self, count: int, moved):
        """moved: a picture and its mask, as they are handed out."""
        self.masks = torch.zeros(count, 1, 12, 12)
        for mask in self.masks:
            row, column = torch.randint(0, 5, (2,)).tolist()
            mask[0, row, column : column + 5] = 1.0
        self.pictures = self.masks + 0.1 * torch.randn(count, 1, 12, 12)
        self.moved = moved

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.moved(self.pictures[index], self.masks[index])


def masks_left_behind(right: bool) -> None:
    """Pictures are flipped at random, and their masks are not."""

    def moved(picture, mask):
        if torch.rand(()) < 0.5:
            picture, mask = picture.flip(-1), mask.flip(-1) if right else mask
        return picture, mask

    fit(
        *layers(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 1)),
        Blobs(48, moved)
    )


def nodes():
    """Inputs, labels and masks of one table."""
    rows = torch.arange(60)
    masks = {"train_mask": rows < 20, "test_mask": rows >= 40}
    return {"x": torch.randn(60, 8), "y": torch.randint(CLASSES, (60,)), **masks}


def fit_nodes(data, loss_of) -> None:
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model(data["x"]), data["y"]).backward()
        optimizer.step()
    with torch.no_grad():
        chosen = data["test_mask"]
        (model(data["x"]).argmax(1) == data["y"])[chosen].float().mean()


def nodes_of_the_test(right: bool) -> None:
    """All nodes are computed at once, and the loss takes all of them."""
    data = nodes()
    kept = data["train_mask"] if right else slice(None)
    fit_nodes(data, lambda out, y: F.cross_entropy(out[kept], y[kept]))


def term_as_a_number(right: bool) -> None:
    """What keeps the results small is taken out of the graph."""
    model, optimizer = layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        x, y = samples(16)
        out = model(x)
        size = out.square().mean()
        loss = F.cross_entropy(out, y)
        if right:
            loss = loss + 0.01 * size
        else:
            loss = loss + 0.01 * size.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


CASES = (
    lengths_of_other_texts,
    labels_of_other_texts,
    weights_of_frequent_classes,
    weights_that_are_numbers,
    classes_balanced_twice,
    penalty_without_a_graph,
    pictures_of_bytes,
    pictures_divided_twice,
    overlap_of_scores,
    mean_over_classes,
    two_schedules_for_one,
    copy_that_stands_still,
    windows_of_one_series,
    scaled_before_the_split,
    masks_left_behind,
    nodes_of_the_test,
    term_as_a_number,
)


if __name__ == "__main__":
    main(CASES)
