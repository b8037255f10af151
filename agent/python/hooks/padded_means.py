"""Means of a loss that count padding as zeros.

Who multiplies the elements of a loss with a mask of the real ones, and takes the mean
of all, divides by padding, too: the scale of the loss depends on how long the others
of the batch are. The sum over the mask's sum does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, saved

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.averages_padding"

_MEANS = ("MeanBackward0", "MeanBackward1")
_SUMS = ("SumBackward0", "SumBackward1")
_MOST = 1 << 20  # elements that are read
_REDUCED = 1  # dimensions that a mask may have besides [samples, positions]


def counts(node: Node) -> bool | None:
    """Is it a mean over a product with a mask of padding? None: no such product."""
    if node.name() not in _MEANS + _SUMS:
        return None
    for given in inputs(node)[:1]:
        if given.name() == "MulBackward0" and _is_masked(given):
            return node.name() in _MEANS
    return None


def _is_masked(product: Node) -> bool:
    """Is one of the factors 1 up to the end of each row, and 0 behind it?"""
    for name in ("other", "self"):
        factor = saved(product, name)
        if factor is not None and any(map(_ends_rows, _tables(factor))):
            return True
    return False


def _tables(factor: torch.Tensor) -> list[torch.Tensor]:
    """It, or what it repeats, as [samples, positions]."""
    if factor.numel() > _MOST or factor.is_complex():
        return []
    if factor.dim() == 2:
        return [factor]
    if factor.dim() == 2 + _REDUCED:
        return [factor[:, :, 0], factor[:, 0]]
    return []


def _ends_rows(table: torch.Tensor) -> bool:
    if min(table.shape) < 2:
        return False
    real = table != 0
    if not bool((real == table).all()):
        return False  # other values than 0 and 1
    lengths = real.sum(1)
    in_order = bool((real[:, 1:] <= real[:, :-1]).all())
    return in_order and bool(lengths.min() > 0) and bool(lengths.min() < lengths.max())
