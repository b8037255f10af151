"""Heads of an attention that a view puts together in the wrong order.

Attention gives [samples, heads, steps, size]. Who wants the heads of a step side by
side, [samples, steps, heads * size], must put the steps first (transpose) before the
view: without that a row holds several steps of one head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.graph_nodes import (
    FUSED_ATTENTION,
    PERMUTATIONS,
    SOFTMAX,
    VIEWS,
    first_shape,
    given_shape,
    inputs,
    shape,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    Sizes = tuple[int, ...]

_PRODUCT = "BmmBackward0"
# What leaves each number where it is.
_IN_PLACE = VIEWS | {
    "CloneBackward0",
    "MulBackward0",  # dropout
    "NativeDropoutBackward0",
    "ToCopyBackward0",
}
_EXPANDED = _IN_PLACE | {"ExpandBackward0"}
# What takes a part of queries, keys and values that lie beside each other.
_PARTS = _EXPANDED | {
    "SelectBackward0",
    "SliceBackward0",
    "SplitBackward0",
    "SplitWithSizesBackward0",
    "SqueezeBackward1",
    "UnbindBackward0",
    "UnsqueezeBackward0",
}
_MOST_BETWEEN = 12


def mixes(view: Node) -> bool | None:
    """None: it is no view of what an attention by heads gives, or the heads may lie
    where the view takes them from."""
    result = shape(view)
    if view.name() not in VIEWS or result is None or not 1 < len(result) < 5:
        return None
    product = _product_before(view)
    sizes = None if product is None else first_shape(product)
    values = None if product is None else _permutation_of_values(product)
    if sizes is None or values is None or min(result) < 1:
        return None
    return _is_in_order_of_heads(sizes, values, result)


def _is_in_order_of_heads(
    product: Sizes, values: tuple[Sizes, Sizes], result: Sizes
) -> bool | None:
    """product: [..., queries, size]; values: sizes before and after a permutation."""
    steps = product[-2]
    sequences = math.prod(product[:-2])  # times heads
    if steps < 2 or sequences < 2 or math.prod(result) % (sequences * steps) != 0:
        return None
    size = math.prod(result) // (sequences * steps)
    before, after = values
    if len(after) == 3:
        # The heads of a step lie side by side, as torch's own attention has them.
        if len(result) != 3 or before != (after[1], after[0], after[2]):
            return None
        heads = result[2] // size
        is_mixed = (
            after[0] == sequences
            and after[0] != after[1]
            and heads > 1
            and result == (steps, sequences // heads, heads * size)
        )
        return True if is_mixed else None
    if len(after) < 4 or sequences % after[-4] != 0:
        return None
    samples, heads, keys, _ = after[-4:]
    if heads == keys or not _swaps_two(before, after[-4:]):
        return None
    heads_of_queries = sequences // samples
    if heads_of_queries % heads != 0 or heads_of_queries in (1, steps):
        return None
    width = heads_of_queries * size
    mixed = (
        (samples * steps, width),
        (samples, steps, width),
        (samples, steps, heads_of_queries, size),
    )
    return True if result in mixed else None


def _swaps_two(before: Sizes, after: Sizes) -> bool:
    """Is [samples, heads, steps, size] made of [samples, steps, heads, size], with
    queries, keys and values beside each other in a dimension more?"""
    samples, heads, steps, size = after
    wanted = (samples, steps, heads, size)
    if len(before) == 4:
        return before == wanted
    left_out = (before[:i] + before[i + 1 :] for i in range(len(before)))
    return len(before) == 5 and wanted in left_out


def _product_before(view: Node) -> Node | None:
    """The product of an attention that the view shows; None: it shows another thing."""
    node: Node | None = view
    for _ in range(_MOST_BETWEEN):
        node = _only_giver(node) if node is not None else None
        if node is None or node.name().startswith(FUSED_ATTENTION):
            return node
        if node.name() == _PRODUCT:
            weights = node.next_functions[0][0]
            return node if _before(weights, _EXPANDED, SOFTMAX) else None
        if node.name() not in _IN_PLACE:
            return None
    return None


def _permutation_of_values(product: Node) -> tuple[Sizes, Sizes] | None:
    """Sizes before and after the permutation that gives an attention its values."""
    place = 1 if product.name() == _PRODUCT else 2
    following = product.next_functions
    values = following[place][0] if len(following) > place else None
    permutation = _before(values, _PARTS, PERMUTATIONS)
    if permutation is None:
        return None
    before, after = given_shape(permutation), shape(permutation)
    return None if before is None or after is None else (before, after)


def _before(
    node: Node | None, between: frozenset[str], wanted: frozenset[str]
) -> Node | None:
    """The nearest with one of these names, the node itself or one before it."""
    for _ in range(_MOST_BETWEEN):
        if node is None or node.name() in wanted:
            return node
        node = _only_giver(node) if node.name() in between else None
    return None


def _only_giver(node: Node) -> Node | None:
    givers = inputs(node)
    return givers[0] if len(givers) == 1 else None
