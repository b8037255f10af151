"""Masks of log-probabilities that keep what they are to leave out.

    labels = targets.masked_fill(ignored, 0)
    (log_softmax.gather(-1, labels) * mask).sum(-1)

What is ignored has one id, which stands in for none. A mask that keeps this one id alone,
and leaves out all different ones, is the inverse of what was meant: a preference or a
policy is trained on its padding and its prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, saved
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.keeps_ignored"

_FILLS = "MaskedFillBackward0"
_MASKING = frozenset((_FILLS, "MulBackward0"))
_FEW = 4  # different ids that are left out, at least
_MOST = 1 << 20  # elements that are read


def keeps_ignored(node: Node) -> bool | None:
    """Are the elements that the mask keeps all of one id, several in a row of the batch,
    and those that it leaves out of many? None: it masks no chosen log-probabilities, or
    that cannot be read."""
    # First by the names of nodes: every layer multiplies.
    ids = _chosen(node) if node.name() in _MASKING else None
    if ids is None or not 1 < ids.numel() <= _MOST:
        return None
    mask = _kept_by(node)
    if mask is None or mask.numel() != ids.numel() or mask.dim() == 0:
        return None
    kept, flat = mask.reshape(-1), ids.reshape(-1)
    rows = len(mask) if mask.dim() > 1 else 1
    if int(kept.sum()) < 2 * rows:
        return None
    of_kept = flat[kept]
    if bool((of_kept != of_kept[0]).any()):
        return False
    if not _are_runs(mask):
        return None  # single tokens that are judged, alike by chance
    return True if len(flat[~kept].unique()) >= _FEW else None


def _are_runs(mask: torch.Tensor) -> bool:
    """Do most elements that are kept lie beside another one, as those of a prompt or of
    padding do?"""
    mask = mask.squeeze(-1) if mask.dim() > 1 else mask
    pairs = mask[..., 1:] & mask[..., :-1]
    beside = torch.zeros_like(mask)
    beside[..., 1:] |= pairs
    beside[..., :-1] |= pairs
    return bool(beside.sum() * 2 > mask.sum())


def _kept_by(node: Node) -> torch.Tensor | None:
    """Which elements are kept; None: it is no mask."""
    if node.name() == _FILLS:
        filled = saved(node, "mask")
        return None if filled is None else ~filled
    if len(inputs(node)) != 1:
        return None
    is_second = node.next_functions[0][0] is None
    weights = saved(node, "self" if is_second else "other")
    if weights is None or weights.is_complex():
        return None
    kept = weights != 0
    return kept if bool((weights[kept] == 1).all()) else None


def _chosen(node: Node) -> torch.Tensor | None:
    """The ids whose log-probabilities it is given; None: it is given others."""
    givers = values_of(inputs(node)[:1])
    if len(givers) != 1 or givers[0].name() != "GatherBackward0":
        return None
    logarithms = {giver.name() for giver in values_of(inputs(givers[0])[:1])}
    return saved(givers[0], "index") if logarithms == {"LogSoftmaxBackward0"} else None
