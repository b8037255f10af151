"""Weights of classes that are their numbers of samples.

Who gives frequent classes the larger weight may want that: weights may be the costs of
mistakes. Nobody wants the very numbers of the samples, or positives divided by negatives
for a label that is rare: the inverse was meant. Targets are counted over some batches
until that can be told; until then nothing is said of weights that may be such numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.class_weights import NAME as FAVOURS_FREQUENT
from _traincheck.class_weights import favours_frequent, weights_and_counts

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.findings import Findings

# Name of the scalar.
NAME = "loss.weighs_by_frequency"

_TARGETS = 300  # that are seen
_RARE = 50  # of each class
_EXACT = 1.15  # factor between weights and numbers
_ROUGH = 3.0
_UNEQUAL = 2.0  # factor between the largest and the smallest weight
_LOOKS = 64


class ClassShares:
    """Of the losses of one place in the code."""

    def __init__(self) -> None:
        self._weights: torch.Tensor | None = None  # float64[rows, classes]
        self._counts: torch.Tensor | None = None
        self._looks = 0
        # Are they the numbers? None: not known yet.
        self._known: bool | None = None

    def awaits_more(self) -> bool:
        """Can more targets tell whether weights are their numbers?"""
        return self._known is None and self._may_be_numbers()

    def add(self, node: Node, found: Findings) -> None:
        favours, exactly = self.look(node)
        found.add(FAVOURS_FREQUENT, favours)
        found.add(NAME, exactly)

    def look(self, node: Node) -> tuple[bool | None, bool | None]:
        """Does the loss favour frequent classes; are its weights their numbers? At most
        one of them is true; None: not said."""
        found = weights_and_counts(node)
        if found is None:
            return None, None
        said = favours_frequent(node)
        if self._known is None:
            self._count(*found)
        if self.awaits_more():
            return (None, None) if said else (said, said)
        if said is True and self._known is None:
            self._known = False  # that was said
        if self._known:
            return None, True
        return said, None if said is None else False

    def _count(self, weights: torch.Tensor, counts: torch.Tensor) -> None:
        self._looks += 1
        if self._weights is None or self._counts is None:
            self._weights, self._counts = weights.clone(), counts.clone()
        elif torch.equal(weights, self._weights) and len(counts) == len(self._counts):
            self._counts += counts
        else:
            self._known = False  # of each batch
            return
        seen = self._counts[self._unequal(weights)]
        if not len(seen):
            self._known = False
        elif int(seen.min()) >= _RARE and int(seen.sum(1).min()) >= _TARGETS:
            if self._fit(_EXACT):
                self._known = True
            elif not self._fit(_EXACT * _chance(seen)):
                self._known = False
        if self._known is None and self._looks >= _LOOKS:
            self._known = False

    def _may_be_numbers(self) -> bool:
        if self._weights is None or self._counts is None:
            return False
        return self._fit(_ROUGH * _chance(self._counts))

    def _fit(self, factor: float) -> bool:
        """Are the numbers as the weights, in proportion to those of the class with the
        largest weight?"""
        if self._weights is None or self._counts is None:
            return False
        unequal = self._unequal(self._weights)
        weights, counts = self._weights[unequal], self._counts[unequal]
        counts = counts.clamp_min(0.5)
        first = weights.argmax(1, keepdim=True)
        shares = weights / weights.gather(1, first)
        quotients = shares / (counts / counts.gather(1, first))
        fit = (quotients < factor) & (quotients > 1 / factor)
        return bool(len(fit)) and bool(fit.all())

    def _unequal(self, weights: torch.Tensor) -> torch.Tensor:
        """Of which rows something can be told."""
        return weights.amax(1) > _UNEQUAL * weights.amin(1)


def _chance(counts: torch.Tensor) -> float:
    """A factor by which few samples may be off."""
    return 1 + 2 / math.sqrt(max(float(counts.min()), 1.0))
