"""Views that mix the samples of a batch.

The last states of a bidirectional recurrence come as [directions, batch, size]. Who
wants them side by side, [batch, directions * size], must put the batch first
(transpose) before the view: without that a row holds states of several samples. The
same goes for whatever lies as [layers, batch, size], and for a batch that is viewed as
[steps, batch, size] for a recurrence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.batch_axis import RECURRENCES, steps_and_sequences
from _traincheck.graph_nodes import given_shape, inputs, integer, kept, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.graph_nodes import Graph

_VIEWS = frozenset(("ReshapeAliasBackward0", "UnsafeViewBackward0", "ViewBackward0"))

_RECURRENCE_ON_DEVICE = "CudnnRnnBackward0"
_TOGETHER = frozenset(("CatBackward0", "StackBackward0"))
# Between a view and a recurrence: the same rows, in the same order.
_ROW_BY_ROW = _VIEWS | {
    "AddBackward0",
    "AddmmBackward0",
    "CloneBackward0",
    "MmBackward0",
}
_MOST_BETWEEN = 16

NAME = "loss.mixes_rows"


def mixes(view: Node, graph: Graph, samples: set[int]) -> bool | None:
    """samples: numbers of labels of the losses, one a sample. None: it is no view of
    [a, b, c] as a matrix of a or b rows, or as [b, a, c], and no recurrence over a view
    of the batch; or it may put neighbours side by side, as windows of one sequence."""
    if view.name() in RECURRENCES:
        recurrence = steps_and_sequences(view)
        return None if recurrence is None else _mixes_batch(view, *recurrence)
    given = given_shape(view) if view.name() in _VIEWS else None
    result = shape(view)
    if given is None or result is None or len(given) != 3:
        return None
    first, second, size = given
    if min(given) < 2 or first == second:
        return None
    if result == (second, first, size):
        apart = first % second != 0 and second % first != 0
        # Rows that are longer than a sample hold several.
        joins = first in samples and first % second == 0
        return True if apart or joins or _is_read_by_steps(view, graph) else None
    if result == (second, first * size):
        apart = first % second != 0 and second % first != 0
        return True if apart or _is_of_layers(view, first) else None
    return False if result == (first, second * size) else None


def _is_read_by_steps(view: Node, graph: Graph) -> bool:
    """Does a recurrence take the first dimension of the view for its steps?"""
    sizes = shape(view) or ()
    todo = [view]
    for _ in range(_MOST_BETWEEN):
        if not todo:
            break
        for taker in graph.takers(todo.pop(0)):
            if taker.name() in RECURRENCES and steps_and_sequences(taker) == sizes[:2]:
                return True
            if taker.name() in _ROW_BY_ROW:
                todo.append(taker)
    return False


def _is_of_layers(view: Node, layers: int) -> bool:
    """Is it a view of the last states of so many layers or directions?"""
    for giver in inputs(view)[:1]:
        if giver.name() == _RECURRENCE_ON_DEVICE:
            return True
        return giver.name() in _TOGETHER and len(giver.next_functions) == layers
    return False


def _mixes_batch(node: Node, steps: int, sequences: int) -> bool | None:
    """Is what the recurrence reads the memory of [sequences, steps, size], taken for
    [steps, sequences, size]? None: it is memory of its own, or needs a gradient."""
    given = kept(node, "input")
    if node.name() == "UnbindBackward0" and integer(node, "dim") == 0:
        giver = inputs(node)[:1]
        while giver and giver[0].name() in _VIEWS:
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
