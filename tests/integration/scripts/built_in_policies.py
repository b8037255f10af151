"""As built_in_signs.py: mistakes in what policies learn, and in how texts, random
generators and evaluations are laid out.

    built_in_policies.py [--right] [CASE...]
"""

import numpy
import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info

from built_in_outputs import WORDS, layers
from built_in_signs import CLASSES, STEPS, main, samples


def ratio_that_starts_apart(right: bool) -> None:
    """The rollout's probabilities are of a temperature that the update does not know.
    Before any update: the first case."""
    policy, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(STEPS // 2):
        states = torch.randn(16, 8)
        with torch.no_grad():
            scores = policy(states) * 10
            acting = Categorical(logits=scores if right else scores / 3)
            actions = acting.sample()
            before = acting.log_prob(actions)
        rewards = (actions == states[:, :CLASSES].argmax(1)).float() - 0.25
        for _ in range(2):
            now = Categorical(logits=policy(states) * 10)
            ratio = (now.log_prob(actions) - before).exp()
            clipped = torch.clamp(ratio, 0.8, 1.2)
            loss = -torch.min(ratio * rewards, clipped * rewards).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def ratio_that_stays(right: bool) -> None:
    """The old policy is the present one: probabilities are computed anew."""
    policy, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(STEPS // 2):
        states = torch.randn(32, 8)
        with torch.no_grad():
            acting = Categorical(logits=policy(states))
            actions = acting.sample()
            before = acting.log_prob(actions)
        rewards = (actions == states[:, :CLASSES].argmax(1)).float() - 0.25
        for _ in range(4):
            now = Categorical(logits=policy(states)).log_prob(actions)
            ratio = (now - (before if right else now.detach())).exp()
            clipped = torch.clamp(ratio, 0.8, 1.2)
            loss = -torch.min(ratio * rewards, clipped * rewards).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def entropy_that_falls(right: bool) -> None:
    """The bonus of the entropy is added to the loss."""
    policy, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        states = torch.randn(16, 8)
        acting = Categorical(logits=policy(states))
        actions = acting.sample()
        rewards = (actions == states[:, :CLASSES].argmax(1)).float() - 0.25
        bonus = 0.01 * acting.entropy().mean()
        loss = -(acting.log_prob(actions) * rewards).mean()
        optimizer.zero_grad()
        (loss - bonus if right else loss + bonus).backward()
        optimizer.step()


class Packed(Dataset):
    """Each row holds two texts, whose positions begin at 0."""

    def __init__(self, rows: int = 32) -> None:
        self.tokens = torch.randint(1, WORDS, (rows, 12))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int):
        first = 4 + index % 5
        at = torch.cat((torch.arange(first), torch.arange(12 - first)))
        return {"ids": self.tokens[index], "position_ids": at}


class Reader(nn.Module):
    def __init__(self, apart: bool):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Embedding(12, 16)
        self.head, self.apart = nn.Linear(16, WORDS), apart

    def forward(self, ids, position_ids):
        x = self.words(ids) + self.places(position_ids)
        texts = (position_ids == 0).cumsum(1)
        mask = torch.ones(len(ids), 12, 12, dtype=torch.bool).tril()
        if self.apart:
            mask &= texts[:, :, None] == texts[:, None, :]
        x = x.unflatten(-1, (2, 8)).transpose(1, 2)
        seen = F.scaled_dot_product_attention(x, x, x, mask[:, None])
        return self.head(seen.transpose(1, 2).flatten(2))


def texts_in_one_row(right: bool) -> None:
    """A causal mask over the whole row."""
    model = Reader(apart=right)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in DataLoader(Packed(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        scores = model(**batch)[:, :-1]
        F.cross_entropy(scores.flatten(0, 1), batch["ids"][:, 1:].flatten()).backward()
        optimizer.step()


class Noisy(Dataset):
    """Adds noise of a generator that it keeps."""

    def __init__(self, seeds_workers: bool) -> None:
        self.x, self.y = samples(64)
        self.noise = numpy.random.default_rng(7)
        self.seeds_workers = seeds_workers
        self.seeded = False

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int):
        if self.seeds_workers and not self.seeded:
            self.noise = numpy.random.default_rng(get_worker_info().seed)
            self.seeded = True
        noise = self.noise.normal(size=8).astype(numpy.float32)
        return self.x[index] + 0.1 * torch.from_numpy(noise), self.y[index]


def seed_workers(worker: int) -> None:
    info = get_worker_info()
    info.dataset.noise = numpy.random.default_rng(info.seed)


def generator_of_the_data_set(right: bool) -> None:
    """Workers copy the generator as it is."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    seed = seed_workers if right else None
    data = Noisy(seeds_workers=False)
    loader = DataLoader(data, 8, shuffle=True, num_workers=2, worker_init_fn=seed)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def evaluation_without_the_rest(right: bool) -> None:
    """Of ten samples the last two are never counted."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    held = DataLoader(TensorDataset(*samples(10)), batch_size=4, drop_last=not right)
    for _ in range(2):
        for x, y in DataLoader(TensorDataset(*samples(32)), 8, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in held:
                model(x)
        model.train()


def prefer(alike: int) -> None:
    """Pairs of 64 samples, so many of which are one and the same."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    for _ in range(20):
        better, worse = torch.randn(2, 64, 8)
        better[:, 0] += 1
        worse[:alike] = better[:alike]
        margin = (model(better) - model(worse)).squeeze(-1)
        optimizer.zero_grad()
        (-F.logsigmoid(margin).mean()).backward()
        optimizer.step()


def pairs_of_one_sample(right: bool) -> None:
    prefer(0 if right else 8)


def wrong_answers_that_are_right(right: bool) -> None:
    prefer(0 if right else 1)


CASES = (
    ratio_that_starts_apart,
    ratio_that_stays,
    entropy_that_falls,
    texts_in_one_row,
    generator_of_the_data_set,
    evaluation_without_the_rest,
    pairs_of_one_sample,
    wrong_answers_that_are_right,
)


if __name__ == "__main__":
    main(CASES)
