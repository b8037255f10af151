"""Losses between distributions that are averaged over the classes.

The cross entropy to soft targets, and the divergence of two distributions, are sums over
the classes. A mean over all elements is as many times smaller, beside the other terms
of the loss (reduction="mean" of kl_div does that).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import dimension, factor, inputs, reduced, shape
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.averages_over_classes"

_OF_ALL, _OF_SOME = ("MeanBackward0", "SumBackward0"), ("MeanBackward1", "SumBackward1")
_BETWEEN = frozenset(("NegBackward0", "SubBackward0"))
_EXACT = 1e-3
_MOST = 1 << 20  # elements of the targets


def averages(node: Node) -> bool | None:
    """Does a mean or a sum of log-probabilities, weighed by probabilities, divide by
    the number of classes? None: it is none, or reduces other dimensions."""
    if node.name() not in _OF_ALL + _OF_SOME:
        return None
    for product in inputs(node):
        while product.name() in _BETWEEN and len(inputs(product)) == 1:
            product = inputs(product)[0]
        over = _classes(product)
        if over is not None and (node.name() in _OF_ALL or over in reduced(node)):
            return str(node.name()).startswith("Mean")
    return None


def _classes(product: Node) -> int | None:
    """The dimension of the classes, of probabilities times log-probabilities."""
    shares, sizes = factor(product), shape(product)
    if shares is None or sizes is None or tuple(shares.shape) != sizes:
        return None
    if not shares.is_floating_point() or shares.numel() > _MOST:
        return None
    for logarithms in values_of(inputs(product)):
        own = shape(logarithms)
        if logarithms.name() != "LogSoftmaxBackward0" or own is None:
            continue
        over = dimension(logarithms, own)
        if over is None or len(own) != len(sizes):  # of single elements
            continue
        # The sign may have been taken first.
        wholes = shares.double().sum(over).abs()
        if bool((shares >= 0).all()) or bool((shares <= 0).all()):
            whole = sizes[over] > 1 and bool(((wholes - 1).abs() < _EXACT).all())
            return over if whole else None
    return None
