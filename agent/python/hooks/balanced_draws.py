"""Rare classes that are balanced twice: by what is drawn and by what the loss weighs.

A WeightedRandomSampler with the inverse of each class's number of samples draws all
classes equally often. Weights of the loss that are such numbers, too, make a rare class
count as much more as it is rarer, and a model that sees it everywhere has a low loss.
Square roots on both sides balance once, and numbers of samples as weights of the loss
undo what was drawn: neither is meant. Which class was drawn with which weight, the rows
of the batch tell.
"""

from __future__ import annotations

from typing import NamedTuple
from typing import TYPE_CHECKING

import torch
from torch.utils.data import WeightedRandomSampler

from _traincheck.graph_nodes import NLL, integer, saved
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from torch.utils.data import DataLoader

# Name of the scalar.
NAME = "loss.balances_twice"

_OF_LOGITS = "BinaryCrossEntropyWithLogitsBackward0"
_PASSES, _BATCHES = 8, 16  # of a sampler, and of a pass, that are looked at
_MOST_SAMPLES = 1 << 20
_MOST = 64  # classes
_UNEQUAL = 2.0  # factor between the largest and the smallest weight
_CLOSE = 1.1  # factor


class Balance(NamedTuple):
    """Of a sampler that gives each sample one of a few weights."""

    weights: torch.Tensor  # float64, of the samples
    different: torch.Tensor  # of them
    counts: torch.Tensor  # of samples with each


class Drawn(NamedTuple):
    """Of one batch."""

    balance: Balance
    weights: torch.Tensor  # that each of its rows was drawn with


class _Pass:
    def __init__(self, balance: Balance) -> None:
        self.balance = balance
        self.batches: list[Drawn | None] = []


class BalancedDraws:
    def __init__(self) -> None:
        self._passes: WeakIdentityMap[Any, _Pass] = WeakIdentityMap()  # by iterators
        self._looks: WeakIdentityMap[WeightedRandomSampler, int] = WeakIdentityMap()

    def begins(self, iterator: Any, loader: DataLoader[Any]) -> None:
        """Called before anything is drawn for a pass."""
        self._passes.discard(iterator)
        sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
        if type(sampler) is not WeightedRandomSampler:
            return
        looks = self._looks.get(sampler) or 0
        if looks == _PASSES:
            return
        self._looks.set(sampler, looks + 1)
        balance = _balance_of(sampler)  # anew: somebody may change the weights
        if balance is not None:
            self._passes.set(iterator, _Pass(balance))

    def yields(self, iterator: Any, indices: Any) -> None:
        """Called with what is asked for next."""
        current = self._passes.get(iterator)
        if current is not None and len(current.batches) < _BATCHES:
            current.batches.append(_drawn(current.balance, indices))

    def fetched(self, iterator: Any, index: int) -> Drawn | None:
        """Of the batch of this number; None: it is not known."""
        current = self._passes.get(iterator)
        if current is None or not 0 <= index < len(current.batches):
            return None
        return current.batches[index]


def balances_twice(node: Node, drawn: Drawn | None) -> bool | None:
    """None: it is no loss of classes with one target for each row of the batch, or what
    was drawn does not balance these."""
    if drawn is None:
        return None
    found = None
    if node.name() in NLL:
        found = _of_classes(node)
    elif node.name() == _OF_LOGITS:
        found = _of_labels(node)
    if found is None or len(found[1]) != len(drawn.weights):
        return None
    return _compare(*found, drawn)


def _balance_of(sampler: WeightedRandomSampler) -> Balance | None:
    weights: Any = sampler.weights
    if type(weights) is not torch.Tensor or not weights.is_cpu or weights.dim() != 1:
        return None
    if not sampler.replacement or not 1 < len(weights) <= _MOST_SAMPLES:
        return None
    weights = weights.detach().double().clone()
    different, counts = torch.unique(weights, return_counts=True)
    if not 1 < len(different) <= _MOST or not bool((different > 0).all()):
        return None
    return Balance(weights, different, counts.double())


def _drawn(balance: Balance, indices: Any) -> Drawn | None:
    if type(indices) is not list or not all(type(one) is int for one in indices):
        return None
    rows = torch.tensor(indices, dtype=torch.int64, device="cpu")
    if not len(rows) or int(rows.max()) >= len(balance.weights) or int(rows.min()) < 0:
        return None
    return Drawn(balance, balance.weights[rows])


def _of_classes(nll: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Weights of the classes, and the class of each row."""
    weights, targets = saved(nll, "weight"), saved(nll, "target")
    if targets is None or targets.dim() != 1 or not len(targets):
        return None
    classes = int(targets.max()) + 1 if weights is None else len(weights)
    if classes > _MOST or bool((targets == integer(nll, "ignore_index")).any()):
        return None
    return _or_ones(weights, classes), targets.long()


def _of_labels(node: Node) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Of negatives and positives of one label."""
    weights, targets = saved(node, "pos_weight"), saved(node, "target")
    if targets is None or (weights is not None and weights.numel() != 1):
        return None
    if not bool(((targets == 0) | (targets == 1)).all()):
        return None
    positive = _or_ones(weights, 1)
    return torch.cat((torch.ones_like(positive), positive)), targets.flatten().long()


def _or_ones(weights: torch.Tensor | None, count: int) -> torch.Tensor:
    if weights is None:
        return torch.ones(count, dtype=torch.float64, device="cpu")
    return weights.double().flatten()


def _compare(weights: torch.Tensor, classes: torch.Tensor, drawn: Drawn) -> bool | None:
    of_classes = torch.zeros_like(weights)
    of_classes[classes] = drawn.weights
    if not torch.equal(of_classes[classes], drawn.weights):
        return None  # something else has these weights
    seen = of_classes > 0
    weights, of_classes = weights[seen], of_classes[seen]
    balance = drawn.balance
    if not torch.equal(of_classes.unique(), balance.different):
        return None  # not all of them are in the batch
    places = torch.searchsorted(balance.different, of_classes)
    alike = torch.bincount(places, minlength=len(balance.different))
    counts = (balance.counts / alike)[places]
    is_balanced = _spread(of_classes * counts) <= _CLOSE
    if not is_balanced or _spread(of_classes) < _UNEQUAL:
        return None
    return _spread(weights / of_classes) <= _CLOSE


def _spread(values: torch.Tensor) -> float:
    """Factor between the largest and the smallest."""
    smallest = float(values.min())
    return float(values.max()) / smallest if smallest > 0 else float("inf")
