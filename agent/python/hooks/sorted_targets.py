"""Losses whose targets go through the classes one after the other, pass after pass.

Who slices arrays that lie sorted by class shows no loader, and a chain of data sets or a
collate function hides the labels of one (see sorted_samples.py). The losses have them:
their targets never fall from one backward to the next, until they begin again with the
class that they began with. A batch of a shuffled training says that at once, so that
hardly any is looked at. Classes that are learned one after the other on purpose do not
come again; several optimizers may belong to clients with a class each.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import NLL, saved, walk

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_NODES = 64  # of a loss's graph, among which its targets are looked for
_BATCHES = 2  # that a class must fill on average, with a step for each
# Of a pass with two classes, with more: two may take turns, as real and made samples do.
_LEAST = (16, 8)
_MOST_LABELS = 1 << 14  # of a batch
_MOST_ALIKE = 1 << 10  # batches of one class
_WAITS = 16  # backwards after a batch that is not sorted, twice as many each time
_MOST_WAITS = 1 << 12
_BINARY = "BinaryCrossEntropy"


class _Pass:
    """Batches whose classes do not fall."""

    def __init__(self, first: int, steps: int, before: int) -> None:
        """before: passes that came before, with the same first class."""
        self.first = first
        self.last: int | None = None
        self.before = before
        self.alike = 0  # batches in a row without another class
        self.told = False
        self._since = steps  # that have begun by then
        self._classes = 0
        self._batches = 0

    def take(self, first: int, last: int) -> None:
        # Of a batch of several classes two are known, which are enough.
        news = {first, last} - {self.last}
        self._classes += len(news)
        self.alike = 0 if news else self.alike + 1
        self._batches += 1
        self.last = last

    def is_whole(self, steps: int) -> bool:
        enough = max(_BATCHES * self._classes, _LEAST[self._classes > 2])
        done = min(self._batches, steps - self._since)
        return self._classes > 1 and done >= enough


class SortedTargets:
    def __init__(self) -> None:
        self._optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        self._wait = 0  # backwards that are not looked at
        self._waits = _WAITS
        self._now = _Pass(0, 0, 0)

    def asks(self, optimizers: list[torch.optim.Optimizer]) -> bool:
        """Called at each outermost backward, with all optimizers that there are."""
        if len(optimizers) != 1:
            return False
        if self._optimizer is None or self._optimizer() is not optimizers[0]:
            self._optimizer = weakref.ref(optimizers[0])
            self._wait, self._waits = 0, _WAITS
            self._now = _Pass(0, 0, 0)
        self._wait = max(0, self._wait - 1)
        return self._wait == 0

    def backward_begins(self, roots: list[Node], steps: int) -> float | None:
        """Called with what the loss was computed by, and how many steps have begun."""
        ends, now = _ends(roots), self._now
        if ends is None or now.alike > _MOST_ALIKE:
            self._give_up()
            return None
        first, last = ends
        if now.last is None:
            now = _Pass(first, steps, 0)
        elif first < now.last:
            if not now.is_whole(steps):
                self._give_up()
                return None
            now = _Pass(first, steps, now.before + 1 if first == now.first else 0)
        self._now = now
        now.take(first, last)
        if now.told or now.before == 0 or not now.is_whole(steps):
            return None
        now.told = True
        return 1.0

    def _give_up(self) -> None:
        self._now = _Pass(0, 0, 0)
        self._wait, self._waits = self._waits, min(2 * self._waits, _MOST_WAITS)


def _ends(roots: list[Node]) -> tuple[int, int] | None:
    """The first and the last class among the targets of a loss; None: they are not
    sorted, or not known."""
    for node in walk(roots, _NODES):
        name = node.name()
        if name not in NLL and not name.startswith(_BINARY):
            continue
        targets = saved(node, "target")
        if targets is None or targets.numel() > _MOST_LABELS:
            return None
        if targets.dim() > 1 and targets.numel() > len(targets):
            return None  # of several labels a sample
        labels = targets.flatten()
        if targets.is_floating_point():
            if not bool(((labels == 0) | (labels == 1)).all()):
                return None
            labels = labels.to(torch.int64)
        if bool((labels.diff() < 0).any()):
            return None
        return int(labels[0]), int(labels[-1])
    return None
