"""As built_in_signs.py: parts of a training that are lost on the way, a term of the
loss, the optimizer's state, an augmentation, the share of real tokens in a mean.

    built_in_lost_parts.py [--right] [CASE...]
"""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, random_split

from built_in_outputs import WORDS, layers
from built_in_signs import CLASSES, STEPS, Classifier, main, samples, train


def adversaries():
    """A network that denoises, and one that tells its results from clean samples."""
    maker, makes = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    judge, judges = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    return maker, makes, judge, judges


def judgement_of_a_detached_result(right: bool) -> None:
    maker, makes, judge, judges = adversaries()
    for _ in range(STEPS):
        clean = torch.randn(16, 8).cumsum(1)
        made = maker(clean + torch.randn(16, 8))
        said = judge(made if right else made.detach())
        loss = F.mse_loss(made, clean) + 0.1 * F.softplus(-said).mean()
        makes.zero_grad()
        loss.backward()
        makes.step()
        judges.zero_grad()
        (judge(made.detach()).mean() - judge(clean).mean()).tanh().backward()
        judges.step()


def rewards_in_a_new_tensor(right: bool) -> None:
    """A policy and what it expects, of one body; the policy's term is of numbers."""
    policy, steps = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES + 1))
    for _ in range(STEPS):
        x, y = samples(16)
        given = policy(x)
        reward = (given[:, :CLASSES].argmax(1) == y).float()
        likely = given[:, :CLASSES].log_softmax(1).gather(1, y[:, None]).squeeze(1)
        terms = [
            -(one * gain) for one, gain in zip(likely, reward - given[:, -1].detach())
        ]
        if right:
            term = torch.stack(terms).mean()
        else:
            term = torch.tensor(
                [one.item() for one in terms], requires_grad=True
            ).mean()
        steps.zero_grad()
        (term + 0.5 * F.mse_loss(given[:, -1], reward)).backward()
        steps.step()


def job(path: str, steps: int, right: bool) -> None:
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if os.path.exists(path):
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        if right:
            optimizer.load_state_dict(kept["optimizer"])
    for _ in range(steps):
        x, y = samples(16)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, path)


def state_that_stays_in_the_file(right: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            job(os.path.join(folder, "last.pt"), STEPS // 2, right)


class Signals(Dataset):
    def __init__(self, transform) -> None:
        self.x, self.y = samples(96)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int):
        return self.transform(self.x[index]), self.y[index]


def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + 0.1 * torch.randn(8)


def plain(x: torch.Tensor) -> torch.Tensor:
    return x


def train_and_evaluate(trained, evaluated) -> None:
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(2):
        for x, y in DataLoader(trained, 16, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, y in DataLoader(evaluated, 16):
                model(x)


def transform_of_the_other_part(right: bool) -> None:
    trained, evaluated = random_split(Signals(noisy), (64, 32))
    if right:
        other = Signals(plain)
        evaluated = torch.utils.data.Subset(other, evaluated.indices)
    else:
        evaluated.dataset.transform = plain
    train_and_evaluate(trained, evaluated)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 16, padding_idx=0)
        self.tags = nn.Linear(16, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tags(self.words(ids))


def tags_of_padding(right: bool) -> None:
    """A word is even or odd; what fills up the texts is neither."""
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        ids = torch.randint(1, WORDS, (16, 12))
        ids[torch.arange(12) >= torch.randint(3, 12, (16, 1))] = 0
        tags = ids % 2
        if right:
            tags = tags.masked_fill(ids == 0, -100)
        optimizer.zero_grad()
        F.cross_entropy(model(ids).reshape(-1, 2), tags.reshape(-1)).backward()
        optimizer.step()


def evaluated_job(
    path: str, values: tuple[float, ...], keeps_best: bool, better=max
) -> None:
    """Goes on from a file, if there is one; values: what its evaluations give."""
    name = f"best_{'acc' if better is max else 'loss'}"
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    epoch, best = 0, 0.0 if better is max else 99.0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        epoch, best = state["epoch"], state[name] if keeps_best else best
    for value in values:
        train(model, optimizer=optimizer)
        epoch, best = epoch + 1, better(best, value)
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**states, "epoch": epoch, name: best}, path)


def best_that_begins_anew(right: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for values in ((0.5, 0.9), (0.7, 0.8)):
            evaluated_job(os.path.join(folder, "last.pt"), values, right)


CASES = (
    judgement_of_a_detached_result,
    rewards_in_a_new_tensor,
    state_that_stays_in_the_file,
    transform_of_the_other_part,
    tags_of_padding,
    best_that_begins_anew,
)

if __name__ == "__main__":
    main(CASES)
