"""Sums that are divided by the same numbers twice.

A sum of a text's tokens becomes their mean by the text's length. Who divides the mean by
the length once more, since it is called a sum elsewhere, makes long texts count less: the
term fades, and the loss still falls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, kept, reduced, saved
from _traincheck.value_graph import SAME_VALUES

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.divided_twice"

_DIVISION = "DivBackward0"
_ON_THE_WAY = SAME_VALUES | {
    "NegBackward0",
    "SplitBackward0",
    "SplitWithSizesBackward0",
}
_SUMS = frozenset(("SumBackward0", "SumBackward1"))
_MOST_ON_THE_WAY = 16  # nodes between two divisions
_MOST = 1 << 16  # divisors that are read


def divides_again(node: Node) -> bool | None:
    """Is what it divides a quotient by the same numbers, or by more of which these are
    the first or the last? None: it does not divide by different whole numbers (a
    quotient by a deviation is divided by it again on purpose)."""
    divisors = _divisors(node)
    if divisors is None:
        return None
    todo = inputs(node)[:1]
    for _ in range(_MOST_ON_THE_WAY):
        if not todo:
            break
        giver = todo.pop()
        if giver.name() == _DIVISION:
            before = _divisors(giver)
            if before is not None and _begins_or_ends(before, divisors):
                return None if _sums_pairs(giver) else True
        elif giver.name() in _ON_THE_WAY:
            todo += inputs(giver)
    return False


def _divisors(node: Node) -> torch.Tensor | None:
    """None: it is no division, or one by one number."""
    if node.name() != _DIVISION or len(inputs(node)) != 1:
        return None
    divisors = saved(node, "other")
    if divisors is None or not 1 < divisors.numel() <= _MOST or divisors.is_complex():
        return None
    if divisors.dtype is torch.bool:
        return None
    flat = divisors.reshape(-1)
    are_counts = bool((flat >= 1).all()) and bool((flat == flat.round()).all())
    return flat if are_counts and bool((flat != flat[0]).any()) else None


def _sums_pairs(division: Node) -> bool:
    """Does it divide a sum over two dimensions of one size? All pairs of a text's tokens
    are as many as the square of its length."""
    sizes: list[int] = []
    todo = inputs(division)[:1]
    for _ in range(_MOST_ON_THE_WAY):
        if not todo:
            break
        node = todo.pop()
        if node.name() in _SUMS:
            sizes += _summed(node)
        elif node.name() not in _ON_THE_WAY:
            continue
        todo += inputs(node)
    wide = [size for size in sizes if size > 1]
    return len(set(wide)) < len(wide)


def _summed(total: Node) -> list[int]:
    """Sizes of the dimensions that it adds up."""
    sizes = kept(total, "self_sym_sizes")
    if not isinstance(sizes, (tuple, list)):
        return []
    over = range(len(sizes)) if total.name() == "SumBackward0" else reduced(total)
    return [int(sizes[one]) for one in over if one < len(sizes)]


def _begins_or_ends(whole: torch.Tensor, part: torch.Tensor) -> bool:
    count = len(part)
    if len(whole) < count:
        return False
    return bool((whole[:count] == part).all()) or bool((whole[-count:] == part).all())
