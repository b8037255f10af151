"""Healthy trainings that come close to a mistake, each in another way than the right
variant of the case of its name in the other scripts.

    built_in_near.py
"""

import copy
import io

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from built_in_sequences import WIDTH, WORDS, next_word, sentences
from built_in_signs import CLASSES, STEPS, Classifier, samples, train


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)


def target_of_random_numbers() -> None:
    """A teacher that begins as the student and follows it."""
    student = Classifier()
    teacher = copy.deepcopy(student).requires_grad_(False)
    pair = nn.ModuleDict({"student": student, "teacher": teacher})
    optimizer = sgd(student)
    for _ in range(STEPS):
        x, y = samples(16)
        optimizer.zero_grad()
        scores = pair["student"](x)
        taught = pair["teacher"](x)
        (F.cross_entropy(scores, y) + F.mse_loss(scores, taught)).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, other in zip(teacher.parameters(), student.parameters()):
                mine.mul_(0.9).add_(other, alpha=0.1)


def kl_of_probabilities() -> None:
    """Of a teacher's probabilities, both softened."""
    teacher = Classifier().requires_grad_(False)
    model = Classifier()
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, _ = samples(16)
        taught = (teacher(x) / 2).softmax(1)
        optimizer.zero_grad()
        scores = (model(x) / 2).log_softmax(1)
        (4 * F.kl_div(scores, taught, reduction="batchmean")).backward()
        optimizer.step()


def several_labels() -> None:
    """Of cross_entropy with one probability of 1 in each place of a sequence."""

    def loss(scores, y):
        ones = F.one_hot(y, CLASSES).float()[:, :, None]
        return F.cross_entropy(scores[:, :, None], ones)

    train(Classifier(), loss)


def labels_of_zero_and_one() -> None:
    """cosine_embedding_loss gets 1 and -1."""

    def loss(scores, y):
        return F.cosine_embedding_loss(scores[:, :2], scores[:, 2:], 2.0 * (y > 1) - 1)

    train(Classifier(), loss)


def labels_of_minus_one() -> None:
    """Smoothed labels stay between 0 and 1."""

    def loss(scores, y):
        labels = 0.9 * F.one_hot(y, CLASSES) + 0.05
        return F.binary_cross_entropy_with_logits(scores, labels)

    train(Classifier(), loss)


def blank_among_the_targets() -> None:
    """The last class is the blank, and class 0 is a letter."""
    model = nn.Linear(8, CLASSES)
    optimizer = sgd(model)
    loss = nn.CTCLoss(blank=CLASSES - 1, zero_infinity=True)
    lengths = torch.full((6,), 10), torch.full((6,), 3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scores = model(torch.randn(10, 6, 8)).log_softmax(2)
        loss(scores, torch.randint(0, CLASSES - 1, (6, 3)), *lengths).backward()
        optimizer.step()


def twin_among_all() -> None:
    """Each picture is to find its own text: the diagonal is what is right."""
    pictures, texts = nn.Linear(8, 6), nn.Linear(8, 6)
    optimizer = torch.optim.SGD([*pictures.parameters(), *texts.parameters()], lr=0.05)
    for _ in range(STEPS):
        x, _ = samples(16)
        optimizer.zero_grad()
        seen = F.normalize(pictures(x), dim=1)
        read = F.normalize(texts(x + 0.1 * torch.randn_like(x)), dim=1)
        F.cross_entropy(seen @ read.t() / 0.1, torch.arange(16)).backward()
        optimizer.step()


class Written(nn.Module):
    """A language model whose attention is written out, with several heads."""

    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        rows = self.project(self.embed(tokens)).unflatten(2, (3, 2, WIDTH // 2))
        q, k, v = rows.permute(2, 0, 3, 1, 4)
        if self.causal:
            size = tokens.shape[1]
            hidden = torch.full((size, size), float("-inf")).triu(1)
        else:
            hidden = (tokens != 0)[:, None, None, :]  # True: it is seen
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        return self.head(y.transpose(1, 2).flatten(2))


def labels_shifted_twice() -> None:
    """The model is given all words, and its loss shifts; padding weighs nothing."""
    model = Written(causal=True)
    weights = torch.ones(WORDS)
    weights[0] = 0
    optimizer = sgd(model)
    for _ in range(STEPS):
        text = sentences(padded=True)
        optimizer.zero_grad()
        next_word(model(text)[:, :-1], text[:, 1:], weight=weights).backward()
        optimizer.step()


def inverted_mask() -> None:
    """scaled_dot_product_attention wants True where something is to be seen."""
    model = Written(causal=False)
    optimizer = sgd(model)
    for _ in range(STEPS):
        text = sentences(padded=True)
        optimizer.zero_grad()
        model(text)[text != 0].square().mean().backward()
        optimizer.step()


def attention_over_queries() -> None:
    """A softmax over the last dimension, behind a mask, for several heads."""

    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(2, 24)
            self.head = nn.Linear(8, CLASSES)

        def forward(self, x):
            rows = self.project(x.unflatten(1, (4, 2))).unflatten(2, (3, 2, 4))
            q, k, v = rows.permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(2, 3) / 2
            hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)
            weights = scores.masked_fill(hidden, float("-inf")).softmax(3)
            return self.head((weights @ v).transpose(1, 2).flatten(2).mean(1))

    train(Heads())


class Recurrent(nn.Module):
    """Steps first, as nn.LSTM wants them."""

    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(2, 8, num_layers=2)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        last = self.body(x.unflatten(1, (4, 2)).transpose(0, 1))[1][0]
        return self.head(last.permute(1, 0, 2).reshape(len(x), 16))


def batch_in_the_place_of_time() -> None:
    """The samples are the second dimension throughout."""
    train(Recurrent())


def penalty_of_pixels() -> None:
    """The norm of all of a sample's gradient, between what is true and made."""
    critic = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        true, made, share = torch.randn(8, 1, 6, 6), torch.rand(8, 1, 6, 6), 0.3
        between = true.lerp(made, share).requires_grad_()
        (slope,) = torch.autograd.grad(
            critic(between).sum(), between, create_graph=True
        )
        penalty = (slope.view(8, -1).norm(2, dim=1) - 1).square().mean()
        (critic(made).mean() - critic(true).mean() + 10 * penalty).backward()
        optimizer.step()


def target_with_a_gradient() -> None:
    """The best value is that of a network of its own, which is not trained."""
    model = Classifier()
    target = copy.deepcopy(model).requires_grad_(False)
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, action = samples(16)
        then, _ = samples(16)
        optimizer.zero_grad()
        best = 0.5 + 0.9 * target(then).max(1).values
        value = model(x).gather(1, action[:, None]).squeeze(1)
        F.smooth_l1_loss(value, best).backward()
        optimizer.step()


def rows_that_stay() -> None:
    """Known words get a gradient of 0, and nothing else moves them."""
    embed = nn.Embedding(12, CLASSES)
    known = torch.arange(12) != 3
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.05)
    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(embed(torch.arange(8)), torch.arange(8) % CLASSES).backward()
        embed.weight.grad[known] = 0
        optimizer.step()


def group_without_decay() -> None:
    """Empty, as all parameters decay; its rate is that of the other one."""
    model = Classifier()
    groups = [
        {"params": list(model.parameters()), "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    train(model, optimizer=torch.optim.SGD(groups, lr=0.05))


def cosine_with_restarts() -> None:
    """Rates that are to rise again; a warm-up that another schedule follows."""
    schedules = torch.optim.lr_scheduler
    for made in (
        lambda o: schedules.CosineAnnealingWarmRestarts(o, 3),
        lambda o: schedules.CosineAnnealingLR(o, 20),
        lambda o: schedules.MultiStepLR(o, (5, 7)),
        lambda o: schedules.SequentialLR(
            o,
            [
                schedules.CosineAnnealingLR(o, 20),
                schedules.LambdaLR(o, lambda n: 1 / (1 + n)),
            ],
            [4],
        ),
    ):
        model = Classifier()
        optimizer = sgd(model)
        rates = made(optimizer)
        for _ in range(8):
            train(model, optimizer=optimizer, steps=1)
            rates.step()


def rates_in_proportion() -> None:
    """A schedule that multiplies what each group was made with."""
    model = Classifier()
    groups = [
        {"params": model.body.parameters(), "lr": 0.001},
        {"params": model.head.parameters(), "lr": 0.01},
    ]
    optimizer = torch.optim.SGD(groups)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for _ in range(12):
        train(model, optimizer=optimizer, steps=1)
        rates.step()


def mean_over_each_row() -> None:
    """The sum over the real elements of each row, by their number."""
    model = Classifier()
    real = torch.arange(6) < torch.tensor([6, 3, 4, 5])[:, None]

    def loss(scores, y):
        elements = F.cross_entropy(scores, y, reduction="none").view(4, 6) * real
        return (elements.sum(1) / real.sum(1)).mean()

    optimizer = sgd(model)
    for _ in range(4):
        x, y = samples(24)
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()


def average_with_statistics() -> None:
    """An average that copies the statistics of its model."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, CLASSES))
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    optimizer = sgd(model)
    for _ in range(6):
        train(model, optimizer=optimizer, steps=1)
        average.update_parameters(model)
    average.eval()
    with torch.no_grad():
        for (x,) in DataLoader(TensorDataset(samples(32)[0]), batch_size=8):
            average(x)


def validation_that_drifted() -> None:
    """What is validated with is standardised, too, and has moved since."""
    y = torch.arange(64) % CLASSES
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    optimizer = sgd(model)
    trained, later = torch.randn(64, 3, 8, 8), torch.randn(64, 3, 8, 8) * 1.1 + 0.2
    for given, label in DataLoader(TensorDataset(trained, y), batch_size=16):
        optimizer.zero_grad()
        F.cross_entropy(model(given), label).backward()
        optimizer.step()
    with torch.no_grad():
        for given, _ in DataLoader(TensorDataset(later, y), batch_size=16):
            model(given)


def teacher_that_is_asked_for_doubt() -> None:
    """Of a fixed teacher in evaluation mode; another one's dropout is its doubt."""
    layers = (nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, CLASSES))
    teacher = nn.Sequential(*layers).requires_grad_(False).eval()
    doubtful = copy.deepcopy(teacher).train()
    model = Classifier()
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, _ = samples(16)
        with torch.no_grad():
            taught = teacher(x)
            doubt = torch.stack([doubtful(x) for _ in range(5)]).std(0)
        optimizer.zero_grad()
        ((model(x) - taught).square() / (1 + doubt)).mean().backward()
        optimizer.step()


def resumed_in_another_place() -> None:
    """A model and an optimizer of one file, whose parameters have an order of their
    own."""
    model = Classifier()
    optimizer = torch.optim.Adam(reversed(list(model.parameters())), lr=0.01)
    train(model, optimizer=optimizer, steps=3)
    file = io.BytesIO()
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(states, file)
    file.seek(0)
    states = torch.load(file)
    for order in (reversed, list):
        again = Classifier()
        again.load_state_dict(states["model"])
        optimizer = torch.optim.Adam(order(list(again.parameters())), lr=0.01)
        if order is reversed:
            optimizer.load_state_dict(states["optimizer"])
        train(again, optimizer=optimizer, steps=2)
    file = io.BytesIO()
    torch.save({"model": again.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    states = torch.load(file)
    again.load_state_dict(states["model"])
    optimizer.load_state_dict(states["optimizer"])
    train(again, optimizer=optimizer, steps=2)


def plateau_of_what_falls() -> None:
    """An error that falls, and an accuracy that was turned around."""
    model = Classifier()
    for _ in range(2):
        optimizer = sgd(model)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        for _ in range(2):
            train(model, optimizer=optimizer, steps=3)
            x, y = samples(32)
            with torch.no_grad():
                accuracy = (model.eval()(x).argmax(1) == y).float().mean()
            model.train()
            error_rate = 1 - accuracy
            scheduler.step(error_rate)
            scheduler.step(-accuracy)


def last_batch_left_out() -> None:
    """A loader that drops its last, smaller batch."""
    model = Classifier()
    optimizer = sgd(model)
    for x, y in DataLoader(TensorDataset(*samples(30)), batch_size=8, drop_last=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


CASES = (
    # First: who follows is looked for at the first step.
    target_of_random_numbers,
    kl_of_probabilities,
    several_labels,
    labels_of_zero_and_one,
    labels_of_minus_one,
    blank_among_the_targets,
    twin_among_all,
    labels_shifted_twice,
    inverted_mask,
    attention_over_queries,
    batch_in_the_place_of_time,
    penalty_of_pixels,
    target_with_a_gradient,
    rows_that_stay,
    group_without_decay,
    cosine_with_restarts,
    rates_in_proportion,
    mean_over_each_row,
    average_with_statistics,
    validation_that_drifted,
    teacher_that_is_asked_for_doubt,
    resumed_in_another_place,
    plateau_of_what_falls,
    last_batch_left_out,
)


def main(all_cases=CASES) -> None:
    for case in all_cases:
        torch.manual_seed(1)
        case()


if __name__ == "__main__":
    main()
