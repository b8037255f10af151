"""Views that mix the samples of a batch.

The last states of a bidirectional recurrence come as [directions, batch, size]. Who
wants them side by side, [batch, directions * size], must put the batch first
(transpose) before the view: without that a row holds states of several samples. The
same goes for whatever lies as [layers, batch, size].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import given_shape, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_VIEWS = frozenset(("ReshapeAliasBackward0", "UnsafeViewBackward0", "ViewBackward0"))

NAME = "loss.mixes_rows"


def mixes(view: Node) -> bool | None:
    """None: it is no view of [a, b, c] as a matrix of a or b rows."""
    given = given_shape(view) if view.name() in _VIEWS else None
    result = shape(view)
    if given is None or result is None or len(given) != 3 or len(result) != 2:
        return None
    first, second, size = given
    if min(given) < 2 or first == second:
        return None
    if result == (second, first * size):
        return True
    return False if result == (first, second * size) else None
