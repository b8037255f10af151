"""Attention whose weights add up to 1 over the queries, read from a loss's graph.

softmax(q k^T) v mixes the values of all keys for each query: the weights of a query
must add up to 1 over the keys, the dimension that the product with v runs over. A
softmax over the other dimension trains, worse. Column-wise weights that are divided
by their sum afterwards (slot attention) are another operation, and matrices that are
no product of queries and keys (transitions of a Markov chain) are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import PRODUCTS, VIEWS, dimension, inputs, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_MAX_NODES = 32
_SOFTMAX = "SoftmaxBackward0"
# Between the weights and the product; the last two dimensions stay what they are.
_HAND_ON = VIEWS | {
    "CloneBackward0",
    "ExpandBackward0",
    "MulBackward0",  # dropout
    "NativeDropoutBackward0",
    "ToCopyBackward0",
}
# Between the product of queries and keys and the softmax: scales and masks.
_SCORES = _HAND_ON | {
    "AddBackward0",
    "DivBackward0",
    "MaskedFillBackward0",
    "MaskedFillBackward1",
    "WhereBackward0",
}


def over_queries(product: Node) -> bool | None:
    """None: it is no product of attention weights with values."""
    if product.name() not in PRODUCTS:
        return None
    left = _left(product)
    softmax = None if left is None else _giver(product, _HAND_ON, _SOFTMAX, left)
    if softmax is None or not _is_of_scores(softmax):
        return None
    weights = shape(softmax)
    if weights is None or min(weights[-2:]) < 2:
        return None
    over = dimension(softmax, weights)
    if over is None or over < len(weights) - 2:
        return None
    return over == len(weights) - 2


def _left(product: Node) -> Node | None:
    """What gives the left factor; None: it needs no gradient."""
    place = 1 if product.name() == "BaddbmmBackward0" else 0
    following = product.next_functions
    return following[place][0] if len(following) > place else None


def _is_of_scores(softmax: Node) -> bool:
    return any(_giver(softmax, _SCORES, name) is not None for name in PRODUCTS)


def _giver(
    node: Node, between: frozenset[str], name: str, first: Node | None = None
) -> Node | None:
    """The first node of this name that gives what the node is given first, or `first`
    of what it is given."""
    size = None
    for _ in range(_MAX_NODES):
        givers = [first] if first is not None else inputs(node)[:1]
        if not givers:
            return None
        node, first = givers[0], None
        given = shape(node)
        if given is None or len(given) < 2:
            return None
        size = size or given[-2:]
        if given[-2:] != size:
            return None
        if node.name() == name:
            return node
        if node.name() not in between:
            return None
    return None
