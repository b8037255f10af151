"""Losses of micro-batches that one step accumulates.

Means add up to too much where nobody divides them by their number, and to too little
where the last group of an epoch is shorter than the number that each is divided by.
(One such group, at the end of a training, says nothing.) By the place that calls
backward: other losses of the step are none of its micro-batches.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from _traincheck.graph_nodes import factor, inputs, saved

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

    from _traincheck.places import Place

# Names of the scalars of a step.
SUMS = "opt.sums_means"
DIVIDES_BY_MORE = "opt.divides_by_more"

_MEAN = 1  # as torch numbers reductions
_MOST_TERMS = 16  # of a sum that are looked at


class Accumulation:
    def __init__(self) -> None:
        # Backwards since the gradients were cleared, and those of plain means, by their
        # place.
        self._places: collections.Counter[Place] = collections.Counter()
        self._means: collections.Counter[Place] = collections.Counter()
        # By what the losses of a place are divided, since then; 0: not all by one number.
        self._divisors: dict[Place, int] = {}
        self._whole: set[Place] = set()  # that have made so many backwards
        self._short: set[Place] = set()  # that have made fewer after that
        self._accumulates = False  # has one place made several in a step?

    def backward_begins(self, here: Place, losses: list[torch.Tensor]) -> None:
        # Not by +=, for which a Counter calls Python where a key is new.
        self._places[here] = self._places.get(here, 0) + 1
        if len(losses) == 1 and losses[0].grad_fn is not None:
            mean = _is_plain_mean(losses[0].grad_fn)
            self._means[here] = self._means.get(here, 0) + mean
            divisor = 1 if mean else _divisor(losses[0].grad_fn)
            if self._divisors.setdefault(here, divisor) != divisor:
                self._divisors[here] = 0

    def cleared(self) -> None:
        self._places.clear()
        self._means.clear()
        self._divisors.clear()

    def sums_means(self) -> float | None:
        """1: the step adds up means of one place in the code and nobody divides;
        None: no place has made several backwards in a step so far."""
        several = [here for here, count in self._places.items() if count > 1]
        self._accumulates = self._accumulates or bool(several)
        sums = any(self._means[here] == self._places[here] for here in several)
        return float(sums) if self._accumulates else None

    def divides_by_more(self) -> float | None:
        """1: losses are divided by the number of micro-batches of other steps, and this
        step has fewer, as one before had; None: they are not divided by such a number,
        or that is not known yet."""
        said = None
        for here, divisor in self._divisors.items():
            count = self._places[here]
            if divisor > 1 and count == divisor:
                self._whole.add(here)
                said = said or 0.0
            elif divisor > count and here in self._short:
                said = 1.0
            elif divisor > count and here in self._whole:
                self._short.add(here)
        return said


def _is_plain_mean(loss: Node) -> bool:
    """Is it a mean as it is, not divided by anything, or a sum with such a term?"""
    terms = [loss]
    for _ in range(_MOST_TERMS):
        if not terms:
            return False
        term = terms.pop()
        if term.name() in ("MeanBackward0", "MeanBackward1"):
            return True
        if getattr(term, "_saved_reduction", None) == _MEAN:
            return True
        if term.name() in ("AddBackward0", "SubBackward0") or _is_times_one(term):
            terms.extend(inputs(term))
    return False


def _is_times_one(term: Node) -> bool:
    """Does it only multiply by 1, or divide by it? A factor that says how many losses
    are added up, and is 1, divides nothing."""
    if len(inputs(term)) != 1:
        return False
    divides = term.name() == "DivBackward0"
    number = saved(term, "other") if divides else factor(term)
    if number is None or number.numel() != 1 or number.is_complex():
        return False
    return float(number.item()) == 1


def _divisor(loss: Node) -> int:
    """The whole number that the loss was divided by last; 0: none is known."""
    divides = loss.name() == "DivBackward0" and len(inputs(loss)) == 1
    number = saved(loss, "other") if divides else factor(loss)
    if number is None or number.numel() != 1 or number.is_complex():
        return 0
    value = float(number.item())
    if not divides:
        value = 1 / value if value else 0.0
    whole = round(value) if abs(value) < 1e6 else 0
    return whole if abs(value - whole) < 1e-3 else 0
