"""Losses that count the padding behind texts as if it had a label.

Labels of single tokens (replaced or not, a tag) are filled up with a class. A mean over
all of them is about the padding, too, unless it has a number that the loss ignores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import NLL, integer, saved

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

_MEAN = 1  # as torch numbers reductions
_LEAST = 8  # targets of the padding


def counts(loss: Node, real: torch.Tensor) -> bool | None:
    """Has the padding one class, and is the mean over it, too?

    real: bool[samples, positions], the rest is padding. None: it is not a mean over
    classes of these positions, or some padding has other targets."""
    targets = saved(loss, "target")
    if loss.name() not in NLL or integer(loss, "reduction") != _MEAN:
        return None
    if targets is None or targets.numel() != real.numel():
        return None
    grid = targets.reshape(real.shape)
    behind, within = grid[~real], grid[real]
    if len(behind) < _LEAST or len(within.unique()) < 2:
        return None
    filling = int(behind[0])
    if not bool((behind == filling).all()):
        return None
    weight = saved(loss, "weight")
    if weight is not None and 0 <= filling < len(weight):
        return float(weight[filling]) != 0
    return filling != integer(loss, "ignore_index")
