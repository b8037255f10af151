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

_VIEWS = frozenset(("ReshapeAliasBackward0", "UnsafeViewBackward0", "ViewBackward0"))

NAME = "loss.mixes_rows"


def mixes(view: Node) -> bool | None:
    """None: it is no view of [a, b, c] as a matrix of a or b rows, or as [b, a, c], and
    no recurrence over a view of the batch."""
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
        return True
    if result == (second, first * size):
        return True
    return False if result == (first, second * size) else None


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
