"""Attention whose weights add up to 1 over the queries, read from a loss's graph.

softmax(q k^T) v mixes the values of all keys for each query: the weights of a query
must add up to 1 over the keys, the dimension that the product with v runs over. A
softmax over the other dimension trains, worse. Column-wise weights that are divided
by their sum afterwards (slot attention) are another operation, and matrices that are
no product of queries and keys (transitions of a Markov chain) are left alone.
"""

from __future__ import annotations

import math

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import (
    PERMUTATIONS,
    PRODUCTS,
    VIEWS,
    dimension,
    first_shape,
    inputs,
    integer,
    kept,
    shape,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_MAX_NODES = 32
_SOFTMAX = "SoftmaxBackward0"
_PARAMETER = "torch::autograd::AccumulateGrad"
_TURNED = PERMUTATIONS | {"TBackward0"}
# Between the weights and the product: what leaves all dimensions where they are.
_IN_PLACE = frozenset(
    (
        "CloneBackward0",
        "ExpandBackward0",
        "MulBackward0",  # dropout
        "NativeDropoutBackward0",
        "ToCopyBackward0",
    )
)
# Between the product of queries and keys and the softmax: scales and masks, too.
_SCORES = (
    _IN_PLACE
    | VIEWS
    | PERMUTATIONS
    | {
        "AddBackward0",
        "DivBackward0",
        "MaskedFillBackward0",
        "MaskedFillBackward1",
        "SqueezeBackward1",
        "UnsqueezeBackward0",  # of einsum
        "WhereBackward0",
    }
)


def over_queries(product: Node) -> bool | None:
    """None: it is no product of attention weights with values."""
    if product.name() not in PRODUCTS:
        return None
    left = _left(product)
    sizes = None if left is None else first_shape(left)
    if left is None or sizes is None or len(sizes) < 2:
        return None
    softmax, places = _softmax_of(left, [len(sizes) - 2, len(sizes) - 1])
    if softmax is None or not _is_of_scores(softmax):
        return None
    weights = shape(softmax)
    over = None if weights is None else dimension(softmax, weights)
    if weights is None or over not in places:
        return None
    return None if min(weights[one] for one in places) < 2 else over == places[0]


def _left(product: Node) -> Node | None:
    """What gives the left factor; None: it needs no gradient."""
    place = 1 if product.name() == "BaddbmmBackward0" else 0
    following = product.next_functions
    return following[place][0] if len(following) > place else None


def _is_of_scores(softmax: Node) -> bool:
    node = softmax
    for _ in range(_MAX_NODES):
        givers = inputs(node)[:1]
        if not givers:
            return False
        node = givers[0]
        if node.name() in PRODUCTS:
            return not any(map(_is_parameter, inputs(node)))
        if node.name() not in _SCORES:
            return False
    return False


def _is_parameter(node: Node) -> bool:
    """As the weights of a layer are: scores of a layer are none of an attention."""
    for _ in range(_MAX_NODES):
        if node.name() == _PARAMETER:
            return True
        if node.name() not in _TURNED or not inputs(node):
            return False
        node = inputs(node)[0]
    return False


def _softmax_of(node: Node, places: list[int]) -> tuple[Node | None, list[int]]:
    """The softmax whose result a node hands on, and which of its dimensions those at
    these places are. None: there is none, or they cannot be followed."""
    for _ in range(_MAX_NODES):
        if node.name() == _SOFTMAX:
            return node, places
        givers, sizes = inputs(node)[:1], first_shape(node)
        given = first_shape(givers[0]) if givers else None
        if sizes is None or given is None:
            break
        followed = [_before(node, one, sizes, given) for one in places]
        places = [one for one in followed if one is not None]
        if len(places) < len(followed):
            break
        node = givers[0]
    return None, []


def _before(
    node: Node, place: int, sizes: tuple[int, ...], given: tuple[int, ...]
) -> int | None:
    """Where a dimension of what a node gives, of these sizes, stands in what the node is
    given."""
    name = node.name()
    if name in VIEWS:
        inner = math.prod(sizes[place + 1 :])
        return next(
            (
                one
                for one, size in enumerate(given)
                if size == sizes[place] > 1 and math.prod(given[one + 1 :]) == inner
            ),
            None,
        )
    if name == "PermuteBackward0":
        order = kept(node, "dims")
        if not isinstance(order, (tuple, list)) or len(order) != len(sizes):
            return None
        taken = int(order[place])  # those below 0 are given as unsigned numbers
        return taken if taken < len(sizes) else taken - 2**64 + len(sizes)
    if name == "TransposeBackward0":
        pair = [integer(node, "dim0"), integer(node, "dim1")]
        ends = [one % len(sizes) for one in pair if one is not None]
        if len(ends) < 2:
            return None
        return ends[1 - ends.index(place)] if place in ends else place
    if name == "UnsqueezeBackward0":
        new = dimension(node, sizes)
        return None if new is None or new == place else place - (new < place)
    # Dimensions may be put in front.
    if name in _IN_PLACE:
        before = place - len(sizes) + len(given)
        return before if before >= 0 and given[before] == sizes[place] else None
    return None
