"""Means of a loss that count padding as zeros, and means over positions that mix the
padding into what a sequence is represented by.

Who multiplies the elements of a loss with a mask of the real ones, and takes the mean
of all, divides by padding, too: the scale of the loss depends on how long the others
of the batch are. The sum over the mask's sum does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, kept, reduced, saved
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Names of the scalars.
NAME = "loss.averages_padding"
POOLS = "loss.pools_padding"

_MEANS = ("MeanBackward0", "MeanBackward1")
_SUMS = ("SumBackward0", "SumBackward1")
# What may have set the padding to zeros: a quotient behind the mean makes up for them.
_SET = frozenset(
    (
        *("CopySlices", "IndexPutBackward0", "MaskedFillBackward0"),
        *("MaskedFillBackward1", "WhereBackward0"),
    )
)
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


def pools(node: Node, real: torch.Tensor) -> bool | None:
    """Is it a mean over the positions of [samples, positions, width], padding included?

    real: bool[samples, positions]. None: it is no such mean, nothing is padded, or
    elements were set before it."""
    sizes = kept(node, "self_sym_sizes")
    if not isinstance(sizes, (tuple, list)) or tuple(sizes[:2]) != tuple(real.shape):
        return None
    if len(sizes) != 3 or reduced(node) != {1} or not ends_rows(real.int()):
        return None
    products = [g for g in inputs(node)[:1] if g.name() == "MulBackward0"]
    if any(giver.name() in _SET for giver in values_of(inputs(node)[:1])):
        return None
    if products:  # with a mask, as far as can be read
        masked = node.name() in _SUMS and any(map(_is_masked, products))
        return False if masked else None
    return True if node.name() in _MEANS else None


def _is_masked(product: Node) -> bool:
    """Is one of the factors 1 up to the end of each row, and 0 behind it?"""
    for name in ("other", "self"):
        factor = saved(product, name)
        if factor is not None and any(map(ends_rows, _tables(factor))):
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


def ends_rows(table: torch.Tensor) -> bool:
    """Of [samples, positions]: is it 1 up to the end of each row and 0 behind it, and
    are some rows longer than others?"""
    if min(table.shape) < 2:
        return False
    real = table != 0
    if not bool((real == table).all()):
        return False  # other values than 0 and 1
    lengths = real.sum(1)
    in_order = bool((real[:, 1:] <= real[:, :-1]).all())
    return in_order and bool(lengths.min() > 0) and bool(lengths.min() < lengths.max())
