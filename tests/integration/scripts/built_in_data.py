"""As built_in_signs.py: mistakes in what is trained with, evaluated, frozen and resumed.

    built_in_data.py [--right] [CASE...]
"""

import pathlib
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, random_split

from built_in_signs import CLASSES, Classifier, main, samples, train

WORDS, END, PAD = 12, 12, 13
IGNORED = -100


class NextWord(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(PAD + 1, 16)
        self.read = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, PAD + 1)

    def forward(self, ids):
        return self.head(self.read(self.words(ids))[0])


def texts(count: int) -> list:
    lengths = torch.randint(3, 9, (count,))
    return [
        torch.cat([torch.randint(WORDS, (n,)), torch.tensor([END])]) for n in lengths
    ]


def padded(rows, padding: int, masked: int):
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
    return {"input_ids": ids, "labels": ids.masked_fill(ids == masked, IGNORED)}


def learn_texts(collate) -> None:
    model = NextWord()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in DataLoader(texts(96), batch_size=8, collate_fn=collate):
        scores, labels = model(batch["input_ids"]), batch["labels"]
        optimizer.zero_grad()
        F.cross_entropy(
            scores[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        ).backward()
        optimizer.step()


def ends_that_are_padding(right: bool) -> None:
    """The padding is the end token, and its labels are masked."""
    padding = PAD if right else END
    learn_texts(lambda rows: padded(rows, padding, masked=padding))


class Sentences(nn.Module):
    """A text is represented by the mean of its positions."""

    def __init__(self, masked: bool):
        super().__init__()
        self.words = nn.Embedding(PAD + 1, 16, padding_idx=PAD)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, CLASSES)
        self.masked = masked

    def forward(self, ids):
        real = ids != PAD
        x = self.layer(self.words(ids), src_key_padding_mask=~real)
        if not self.masked:
            return self.head(x.mean(1))
        weight = real[..., None].float()
        return self.head((x * weight).sum(1) / weight.sum(1))


def mean_over_positions(right: bool) -> None:
    """Padding is among them."""
    model = Sentences(masked=right)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for rows in DataLoader(texts(64), batch_size=8, collate_fn=list):
        ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
        optimizer.zero_grad()
        F.cross_entropy(model(ids), ids[:, 0] % CLASSES).backward()
        optimizer.step()


def loss_of_rounded_scores(right: bool) -> None:
    """What the autocast region gives goes into the loss outside of it."""
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(8):
        x, y = samples(16)
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(x)
        optimizer.zero_grad()
        F.cross_entropy(scores.float() if right else scores, y).backward()
        optimizer.step()


def fit(model, data, epochs: int = 2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(epochs):
        for x, y in DataLoader(data, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def validate(model, data) -> None:
    model.eval()
    with torch.no_grad():
        hits = [(model(x).argmax(1) == y).sum() for x, y in DataLoader(data, 8)]
    model.train()
    print("accuracy", float(sum(hits)) / len(data))


def whole_in_place_of_a_part(right: bool) -> None:
    """The training is given what was split."""
    model, data = Classifier(), TensorDataset(*samples(64))
    part, held_out = random_split(data, [48, 16])
    fit(model, part if right else data)
    validate(model, held_out)
    fit(model, part if right else data)


class Varied(Dataset):
    """Samples with a little noise."""

    def __init__(self, count: int, varies: bool = True):
        self.x, self.y = samples(count)
        self.varies = varies

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        return x + 0.1 * torch.randn_like(x) if self.varies else x, self.y[index]


def folds_of_one_model(right: bool) -> None:
    """Each fold goes on with the model of the one before."""
    data = TensorDataset(*samples(60))
    folds = [range(0, 20), range(20, 40), range(40, 60)]
    model = Classifier()
    for held_out in folds:
        if right:
            model = Classifier()
        rest = [index for index in range(60) if index not in held_out]
        fit(model, Subset(data, rest))
        validate(model, Subset(data, held_out))


def noise_in_the_validation(right: bool) -> None:
    """Both parts share what varies the samples."""
    model, data = Classifier(), Varied(64)
    part, held_out = random_split(data, [48, 16])
    for _ in range(2):
        data.varies = True
        fit(model, part)
        data.varies = not right
        validate(model, held_out)


class Tuned(nn.Module):
    """A head on a body that stays as it is."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def statistics_of_a_frozen_body(right: bool) -> None:
    """Its parameters are frozen, its BatchNorm goes on in training mode."""
    model = Tuned()
    model.body.requires_grad_(False)
    model.body.train(not right)
    train(model, optimizer=torch.optim.SGD(model.head.parameters(), lr=0.05))


def job(path: pathlib.Path, into: pathlib.Path, keeps_state: bool) -> None:
    """Goes on from what `path` holds, if it is there."""
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if path.exists():
        content = torch.load(path)
        model.load_state_dict(content["model"])
        if keeps_state:
            optimizer.load_state_dict(content["optimizer"])
    train(model, optimizer=optimizer, steps=3)
    content = {"model": model.state_dict()}
    if keeps_state:
        content["optimizer"] = optimizer.state_dict()
    torch.save(content, into)


def jobs_without_moments(right: bool) -> None:
    """Short jobs, each of which goes on from the weights of the one before."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "last.pt")
        for _ in range(3):
            job(path, path, keeps_state=right)


CASES = (
    ends_that_are_padding,
    mean_over_positions,
    loss_of_rounded_scores,
    whole_in_place_of_a_part,
    folds_of_one_model,
    noise_in_the_validation,
    statistics_of_a_frozen_body,
    jobs_without_moments,
)


if __name__ == "__main__":
    main(CASES)
