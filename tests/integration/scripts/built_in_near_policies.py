"""Healthy trainings that come close to the mistakes of built_in_policies.py, each in
its own way.

    built_in_near_policies.py
"""

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, get_worker_info

from built_in_near import main
from built_in_outputs import layers
from built_in_policies import Noisy, Packed, Reader
from built_in_signs import CLASSES, STEPS, samples


def ratio_by_hand() -> None:
    """Before the first update it is 1 up to rounding; the entropy is computed by hand
    and divided, and subtracted last."""
    policy, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    states = torch.randn(32, 8)
    with torch.no_grad():
        before = policy(states).double().log_softmax(1).float()
        actions = before.exp().multinomial(1)
    rewards = torch.randn(32, 1)
    for _ in range(STEPS):
        logarithms = policy(states).log_softmax(1)
        chosen = logarithms.gather(1, actions)
        ratio = torch.exp(chosen - before.gather(1, actions))
        gain = torch.min(ratio * rewards, ratio.clamp(0.9, 1.1) * rewards)
        entropy = -(logarithms.exp() * logarithms).sum(1)
        optimizer.zero_grad()
        (-gain.mean() - entropy.sum() / 3200).backward()
        optimizer.step()


def ratio_of_minibatches() -> None:
    """It is written with what is detached where each sample is used once, and with what
    was kept where it is used again."""
    policy, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for times in (1,) * STEPS + (3,) * 4:
        states, rewards = torch.randn(32, 8), torch.randn(32)
        with torch.no_grad():
            before = policy(states).log_softmax(1)
            actions = before.exp().multinomial(1)
        for _ in range(times):
            now = policy(states).log_softmax(1).gather(1, actions)[:, 0]
            old = before.gather(1, actions)[:, 0] if times > 1 else now.detach()
            ratio = (now - old).exp()
            gain = torch.min(ratio * rewards, ratio.clamp(0.8, 1.2) * rewards)
            optimizer.zero_grad()
            (-gain.mean()).backward()
            optimizer.step()


def confident_answers() -> None:
    """Entropy is to fall, of a classifier that adapts to unlabelled data."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for _ in range(STEPS):
        x, y = samples(16)
        scores = model(x)
        unlabelled = model(torch.randn(16, 8)).log_softmax(1)
        entropy = -(unlabelled.exp() * unlabelled).sum(1).mean()
        optimizer.zero_grad()
        (F.cross_entropy(scores, y) + 0.1 * entropy).backward()
        optimizer.step()


def texts_with_a_mask_to_add() -> None:
    """The mask is added to the scores: 0, and minus infinity."""

    class Adding(Reader):
        def forward(self, ids, position_ids):
            x = self.words(ids) + self.places(position_ids)
            texts = (position_ids == 0).cumsum(1)
            own = (texts[:, :, None] == texts[:, None, :]).tril()
            mask = torch.zeros(own.shape).masked_fill(~own, float("-inf"))
            scores = x @ x.transpose(1, 2) / 4 + mask
            return self.head(scores.softmax(-1) @ x)

    model = Adding(apart=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for batch in DataLoader(Packed(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        scores = model(**batch)[:, :-1]
        F.cross_entropy(scores.flatten(0, 1), batch["ids"][:, 1:].flatten()).backward()
        optimizer.step()


def number_the_workers(worker: int) -> None:
    get_worker_info().dataset.noise = numpy.random.default_rng((7, worker))


def generators_of_workers() -> None:
    """Made when a worker begins, of its number, and when it first gives a sample."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    for late, begin in ((False, number_the_workers), (True, None)):
        data = Noisy(seeds_workers=late)
        for x, y in DataLoader(data, 8, num_workers=2, worker_init_fn=begin):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


def evaluation_of_whole_batches() -> None:
    """drop_last drops nothing, and a look at random batches may leave some out."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    held = TensorDataset(*samples(12))
    for x, y in DataLoader(TensorDataset(*samples(32)), 8, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(held, batch_size=4, drop_last=True):
            model(x)
        for x, y in DataLoader(held, batch_size=5, drop_last=True, shuffle=True):
            model(x)


def candidates_of_which_wrong_ones_repeat() -> None:
    """And a policy that is its reference in the first steps."""
    model, optimizer = layers(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    for step in range(20):
        asked, found = torch.randn(64, 8), torch.randn(64, 5, 8)
        found[:, 2] = found[:, 1]
        if step < 2:
            found[:] = found[:, :1]
        scores = torch.einsum("bd,bkd->bk", model(asked), model(found))
        optimizer.zero_grad()
        F.cross_entropy(scores, torch.zeros(64, dtype=torch.long)).backward()
        optimizer.step()


CASES = (
    ratio_by_hand,
    ratio_of_minibatches,
    confident_answers,
    texts_with_a_mask_to_add,
    generators_of_workers,
    evaluation_of_whole_batches,
    candidates_of_which_wrong_ones_repeat,
)


if __name__ == "__main__":
    main(CASES)
