"""Views that mix the samples of a batch.

The last states of a bidirectional recurrence come as [directions, batch, size]. Who
wants them side by side, [batch, directions * size], must put the batch first
(transpose) before the view: without that a row holds states of several samples. The
same goes for whatever lies as [layers, batch, size], for a batch that is viewed as
[steps, batch, size] for a recurrence or an attention, and for the heads of an attention
(mixed_heads.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.batch_axis import RECURRENCES, steps_and_sequences
from _traincheck.graph_nodes import (
    FUSED_ATTENTION,
    LAYER_PRODUCTS,
    PERMUTATIONS,
    VIEWS,
    first_shape,
    given_shape,
    inputs,
    integer,
    kept,
    shape,
)
from _traincheck.mixed_heads import mixes as mixes_heads

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.graph_nodes import Graph

_RECURRENCE_ON_DEVICE = "CudnnRnnBackward0"
_TOGETHER = frozenset(("CatBackward0", "StackBackward0"))
# Between a view and a recurrence: the same rows, in the same order.
_ROW_BY_ROW = VIEWS | LAYER_PRODUCTS | {"AddBackward0", "CloneBackward0"}
# Between a view and the heads of an attention: torch's own projects queries, keys and
# values together and then takes them apart.
_BEFORE_HEADS = _ROW_BY_ROW | {
    "MulBackward0",  # dropout
    "NativeDropoutBackward0",
    "NativeLayerNormBackward0",
    "SelectBackward0",
    "SplitBackward0",
    "SqueezeBackward1",
    "ToCopyBackward0",
    "TransposeBackward0",
    "UnbindBackward0",
    "UnsqueezeBackward0",
}
# Between the heads and the product of queries, or of weights, and keys or values.
_BEFORE_PRODUCT = (
    VIEWS
    | PERMUTATIONS
    | {"CloneBackward0", "ExpandBackward0", "MulBackward0", "MulBackward1"}
)
_PRODUCTS = frozenset(("BaddbmmBackward0", "BmmBackward0"))
_MOST_BETWEEN = 16
_MOST_BEFORE_HEADS = 64

NAME = "loss.mixes_rows"


def mixes(view: Node, graph: Graph, samples: set[int]) -> bool | None:
    """samples: numbers of labels of the losses, one a sample. None: it is no view of
    [a, b, c] as a matrix of a or b rows, or as [b, a, c], and no recurrence over a view
    of the batch; or it may put neighbours side by side, as windows of one sequence."""
    if view.name() in RECURRENCES:
        recurrence = steps_and_sequences(view)
        return None if recurrence is None else _mixes_batch(view, *recurrence)
    given = given_shape(view) if view.name() in VIEWS else None
    result = shape(view)
    if given is None or result is None:
        return None
    if mixes_heads(view):
        return True
    if len(given) != 3:
        return None
    first, second, size = given
    if min(given) < 2 or first == second:
        return None
    if result == (second, first, size):
        apart = first % second != 0 and second % first != 0
        # Rows that are longer than a sample hold several.
        joins = first in samples and first % second == 0
        if apart or joins or _is_read_by_steps(view, graph):
            return True
        # Every other step of [steps, samples] may be a sequence of its own.
        is_dilated = first % second == 0
        return None if is_dilated or not _is_attended_by_steps(view, graph) else True
    if result == (second, first * size):
        apart = first % second != 0 and second % first != 0
        return True if apart or _is_of_layers(view, first) else None
    return False if result == (first, second * size) else None


def _is_read_by_steps(view: Node, graph: Graph) -> bool:
    """Does a recurrence take the first dimension of the view for its steps?"""
    sizes = shape(view) or ()

    def goes_through(taker: Node) -> bool:
        return taker.name() in _ROW_BY_ROW

    return any(
        taker.name() in RECURRENCES and steps_and_sequences(taker) == sizes[:2]
        for taker in graph.taken_on(view, goes_through, _MOST_BETWEEN)
    )


def _is_attended_by_steps(view: Node, graph: Graph) -> bool:
    """Does an attention by heads take the first dimension of the view for its steps?"""
    steps, samples, _ = shape(view) or (0, 0, 0)

    def goes_through(taker: Node) -> bool:
        sizes = first_shape(taker) or ()
        return taker.name() in _BEFORE_HEADS and _keeps(sizes, steps, samples)

    return any(
        _gives_heads(taker, steps, samples) and _is_multiplied(taker, graph)
        for taker in graph.taken_on(view, goes_through, _MOST_BEFORE_HEADS)
    )


def _keeps(sizes: tuple[int, ...], steps: int, samples: int) -> bool:
    """Do the steps and their samples lie as they did: side by side, as one dimension, or
    with the heads of the samples?"""
    pairs = zip(sizes, sizes[1:])
    if (steps, samples) in pairs or sizes[:1] == (steps * samples,):
        return True
    return len(sizes) == 3 and sizes[0] == steps and sizes[1] % samples == 0


def _gives_heads(node: Node, steps: int, samples: int) -> bool:
    """[steps, samples * heads, size] as [samples * heads, steps, size], or the same with
    a dimension for the heads."""
    given = given_shape(node) if node.name() in PERMUTATIONS else None
    if given is None or given[:1] != (steps,):
        return False
    if len(given) == 3:
        beside = given[1] > samples and given[1] % samples == 0
        return beside and shape(node) == (given[1], steps, given[2])
    four = len(given) == 4 and given[1] == samples
    return four and shape(node) == (samples, given[2], steps, given[3])


def _is_multiplied(heads: Node, graph: Graph) -> bool:
    def goes_through(taker: Node) -> bool:
        return taker.name() in _BEFORE_PRODUCT

    return any(
        taker.name() in _PRODUCTS or taker.name().startswith(FUSED_ATTENTION)
        for taker in graph.taken_on(heads, goes_through, _MOST_BETWEEN)
    )


def _is_of_layers(view: Node, layers: int) -> bool:
    """Is it a view of the last states of so many layers or directions?"""
    for giver in inputs(view)[:1]:
        if giver.name() == _RECURRENCE_ON_DEVICE:
            return True
        return giver.name() in _TOGETHER and len(giver.next_functions) == layers
    return False


def _mixes_batch(node: Node, steps: int, sequences: int) -> bool | None:
    """Is what the recurrence reads the memory of [sequences, steps, size], taken for
    [steps, sequences, size]? None: it is memory of its own, or needs a gradient, or has
    one row or step, so that both orders are one, and a transposition is a view, too."""
    if min(steps, sequences) < 2:
        return None
    given = kept(node, "input")
    if node.name() == "UnbindBackward0" and integer(node, "dim") == 0:
        giver = inputs(node)[:1]
        while giver and giver[0].name() in VIEWS:
            giver = inputs(giver[0])[:1]
        given = kept(giver[0], "mat1") if giver else None
    if type(given) is not torch.Tensor or steps == sequences:
        return None
    base = given._base
    if base is None or base.dim() != 3 or base.numel() != given.numel():
        return None
    if tuple(base.shape[:2]) == (steps, sequences):
        return False
    return True if tuple(base.shape[:2]) == (sequences, steps) else None
