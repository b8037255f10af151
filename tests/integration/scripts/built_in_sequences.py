"""As built_in_signs.py: mistakes with sequences, labels and batches.

    built_in_sequences.py [--right] [CASE...]
"""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from built_in_signs import CLASSES, STEPS, Classifier, main, samples, train

WORDS, LENGTH, WIDTH = 20, 12, 16


class Writer(nn.Module):
    """A small language model."""

    def __init__(self, causal: bool = True, padding: int | None = None):
        super().__init__()
        self.causal = causal
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=padding)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, hidden=None):
        mask = None
        if self.causal:
            size = tokens.shape[1]
            mask = torch.ones(size, size, dtype=torch.bool).triu(1)
        rows = self.embed(tokens)
        return self.head(self.layer(rows, mask, src_key_padding_mask=hidden))


def sentences(padded: bool = False) -> torch.Tensor:
    """A counter with a random step, so that there is something to learn."""
    first, step = torch.randint(1, WORDS, (8, 1)), torch.randint(1, 4, (8, 1))
    text = (first + step * torch.arange(LENGTH + 1)) % (WORDS - 1) + 1
    if padded:
        length = torch.randint(4, LENGTH - 1, (8, 1))
        text[torch.arange(LENGTH + 1) >= length] = 0
    return text


def write(model: Writer, loss) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()


def next_word(scores, targets, **options):
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten(), **options)


def attention_without_a_mask(right: bool) -> None:
    """Each position sees the word that it is to predict."""

    def loss(model):
        text = sentences()
        return next_word(model(text[:, :-1]), text[:, 1:])

    write(Writer(causal=right), loss)


def targets_without_a_shift(right: bool) -> None:
    """The targets are the words that are given."""

    def loss(model):
        text = sentences()
        given, targets = (text[:, :-1], text[:, 1:]) if right else (text, text)
        return next_word(model(given), targets)

    write(Writer(), loss)


def padding_in_the_loss(right: bool) -> None:
    """The ends of short sentences are learned, too."""

    def loss(model):
        text = sentences(padded=True)
        options = {"ignore_index": 0} if right else {}
        return next_word(model(text[:, :-1]), text[:, 1:], **options)

    write(Writer(padding=0), loss)


def inverted_mask(right: bool) -> None:
    """True means "hidden" to torch's layers, and "seen" to others."""

    def loss(model):
        text = sentences(padded=True)
        padding = text == 0
        scores = model(text, padding if right else ~padding)
        return scores[~padding].square().mean()

    write(Writer(causal=False, padding=0), loss)


def mask_of_zeros_and_ones(right: bool) -> None:
    """Numbers are added to the scores: a mask must be booleans, or 0 and -inf."""

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(2, 12)
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x):
            q, k, v = self.project(x.unflatten(1, (4, 2))).chunk(3, dim=-1)
            mask = torch.ones(4, 4).tril()
            mask = mask > 0 if right else mask
            y = F.scaled_dot_product_attention(
                q[:, None], k[:, None], v[:, None], attn_mask=mask
            )
            return self.head(y[:, 0].mean(1))

    train(Masked())


def batch_in_the_place_of_time(right: bool) -> None:
    """nn.LSTM takes steps first unless it is told otherwise."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(2, 8, batch_first=right)
            self.head = nn.Linear(8, CLASSES)

        def forward(self, x):
            return self.head(self.layer(x.unflatten(1, (4, 2)))[0][:, -1])

    train(Recurrent())


def labels_of_zero_and_one(right: bool) -> None:
    """margin_ranking_loss wants 1 and -1."""

    def loss(scores, y):
        labels = (y > 1).float()
        labels = 2 * labels - 1 if right else labels
        return F.margin_ranking_loss(scores[:, 0], scores[:, 1], labels, margin=0.2)

    train(Classifier(), loss)


def recognise(right_targets: bool = True, right_scores: bool = True) -> None:
    model = nn.Linear(8, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    lengths = torch.full((6,), 10), torch.full((6,), 3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scores = model(torch.randn(10, 6, 8))
        targets = torch.randint(1 if right_targets else 0, CLASSES, (6, 3))
        scores = scores.log_softmax(2) if right_scores else scores
        F.ctc_loss(scores, targets, *lengths, zero_infinity=True).backward()
        optimizer.step()


def blank_among_the_targets(right: bool) -> None:
    """Class 0 is the blank of ctc_loss, and no letter."""
    recognise(right_targets=right)


def ctc_of_scores(right: bool) -> None:
    """ctc_loss takes logarithms of probabilities."""
    recognise(right_scores=right)


def target_with_a_gradient(right: bool) -> None:
    """Q-learning pulls the target to the value, too."""

    class Values(Classifier):
        pass

    model = Values()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, action = samples(16)
        then, _ = samples(16)
        optimizer.zero_grad()
        best = model(then).max(1).values
        best = 0.5 + 0.9 * (best.detach() if right else best)
        value = model(x).gather(1, action[:, None]).squeeze(1)
        F.smooth_l1_loss(value, best).backward()
        optimizer.step()


def learn(batches, model=None, optimizer=None) -> None:
    model = model or Classifier()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for x, y in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def one_class_after_the_other(right: bool) -> None:
    """The data lie sorted, and nobody shuffles them."""
    y = torch.arange(64) // 16
    x = F.one_hot(y, 8).float() + 0.1 * torch.randn(64, 8)
    learn(DataLoader(TensorDataset(x, y), batch_size=8, shuffle=right))


def evaluation_of_raw_values(right: bool) -> None:
    """The evaluation's inputs are not divided by 255."""
    x, y = samples(32)
    seen = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    held_out = TensorDataset(x if right else 255 * x, y)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        model.train()
        learn(seen, model, optimizer)
        model.eval()
        with torch.no_grad():
            for x, y in DataLoader(held_out, batch_size=16):
                F.cross_entropy(model(x), y)


def evaluation_in_training_mode(right: bool) -> None:
    """Nobody calls eval()."""

    class Dropping(Classifier):
        def forward(self, x):
            return F.linear(self.drop(x), self.head.weight @ self.body.weight)

        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.2)

    x, y = samples(32)
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    model = Dropping()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        model.train()
        learn(loader, model, optimizer)
        model.train(not right)
        for x, y in loader:
            with torch.no_grad():
                F.cross_entropy(model(x), y)


class OneBuffer(torch.utils.data.Dataset):
    """Hands out the same memory, filled with another sample."""

    def __init__(self, copies: bool):
        self.rows, self.labels = samples(32)
        self.buffer, self.copies = torch.empty(8), copies

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.buffer.copy_(self.rows[index])
        row = self.buffer.clone() if self.copies else self.buffer
        return row, self.labels[index]


def one_buffer_for_all_samples(right: bool) -> None:
    """All samples of a batch are the last one."""

    def collate(pairs):
        rows, labels = zip(*list(pairs))
        return torch.stack(rows), torch.stack(labels)

    data = OneBuffer(copies=right)
    learn(DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate))


def first_batch_for_ever(right: bool) -> None:
    """next(iter(loader)) begins again."""
    loader = DataLoader(TensorDataset(*samples(32)), batch_size=8)
    if right:
        learn(loader)
    else:
        learn(next(iter(loader)) for _ in range(STEPS))


def momentum_of_the_old_statistics(right: bool) -> None:
    """0.99 is the share of the old statistics elsewhere."""
    norm = nn.BatchNorm1d(8, momentum=0.01 if right else 0.99)
    train(nn.Sequential(norm, nn.Linear(8, CLASSES)))


def dropout_of_what_is_kept(right: bool) -> None:
    """0.9 is what is kept elsewhere."""
    train(nn.Sequential(nn.Dropout(0.1 if right else 0.9), nn.Linear(8, CLASSES)))


def labels_shifted_twice(right: bool) -> None:
    """By the script, and by the model's loss."""

    def loss(model):
        text = sentences()
        given, labels = (text, text) if right else (text[:, :-1], text[:, 1:])
        return next_word(model(given)[:, :-1], labels[:, 1:])

    write(Writer(), loss)


def penalty_of_pixels(right: bool) -> None:
    """The norm runs over the channels."""
    critic = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, 1, 6, 6, requires_grad=True)
        (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
        norm = (slope.flatten(1) if right else slope).norm(2, dim=1)
        (critic(x).mean() + (norm - 1).square().mean()).backward()
        optimizer.step()


def one_region_for_all_steps(right: bool) -> None:
    """autocast keeps its casts of the weights."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def region():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    with contextlib.nullcontext() if right else region():
        for _ in range(STEPS):
            x, y = samples(16)
            optimizer.zero_grad()
            with region():
                scores = model(x)
            F.cross_entropy(scores.float(), y).backward()
            optimizer.step()


def rate_reset_on_resume(right: bool) -> None:
    """The scheduler is made when the optimizer has been loaded."""

    def halved(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)

    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = halved(optimizer)
    train(model, optimizer=optimizer, steps=3)
    scheduler.step()
    saved = optimizer.state_dict(), scheduler.state_dict()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.load_state_dict(saved[0])
    scheduler = halved(optimizer)
    scheduler.load_state_dict(saved[1])
    if right:
        optimizer.param_groups[0]["lr"] = scheduler.get_last_lr()[0]
    train(model, optimizer=optimizer, steps=3)


def one_cycle_of_epochs(right: bool) -> None:
    """OneCycleLR counts batches."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)
    for step in range(12):
        train(model, optimizer=optimizer, steps=1)
        if right or step % 4 == 3:
            cycle.step()


def twin_among_all(right: bool) -> None:
    """A contrastive loss leaves each sample among its candidates."""
    model = nn.Linear(8, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, _ = samples(8)
        z = F.normalize(model(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
        scores = z @ z.t() / 0.2
        if right:
            scores = scores.masked_fill(torch.eye(16, dtype=torch.bool), -1e9)
        optimizer.zero_grad()
        F.cross_entropy(scores, torch.arange(16).roll(8)).backward()
        optimizer.step()


def several_labels(right: bool) -> None:
    """cross_entropy of rows with several ones."""

    def loss(scores, y):
        labels = F.one_hot(y, CLASSES).float()
        if not right:
            labels = (labels + labels.roll(1, 1)).clamp(max=1)
        return F.cross_entropy(scores, labels)

    train(Classifier(), loss)


def schedule_for_nobody(right: bool) -> None:
    """The scheduler is made and forgotten."""
    x, y = samples(32)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(4):
        learn(loader, model, optimizer)
        if right:
            scheduler.step()


CASES = (
    attention_without_a_mask,
    targets_without_a_shift,
    padding_in_the_loss,
    inverted_mask,
    mask_of_zeros_and_ones,
    batch_in_the_place_of_time,
    labels_of_zero_and_one,
    blank_among_the_targets,
    ctc_of_scores,
    target_with_a_gradient,
    one_class_after_the_other,
    evaluation_of_raw_values,
    evaluation_in_training_mode,
    one_buffer_for_all_samples,
    first_batch_for_ever,
    momentum_of_the_old_statistics,
    dropout_of_what_is_kept,
    labels_shifted_twice,
    penalty_of_pixels,
    one_region_for_all_steps,
    rate_reset_on_resume,
    one_cycle_of_epochs,
    twin_among_all,
    several_labels,
    schedule_for_nobody,
)


if __name__ == "__main__":
    main(CASES)
