"""Masks of log-probabilities that keep what they are to leave out.

    labels = targets.masked_fill(ignored, 0)
    (log_softmax.gather(-1, labels) * mask).sum(-1)
    (cross_entropy(scores, labels, reduction="none") * mask).sum()

What is ignored has one id, which stands in for none. A mask that keeps this one id alone,
and leaves out all different ones, is the inverse of what was meant: a preference or a
policy is trained on its padding and its prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import NLL, inputs, integer, kept, saved
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node

    from _traincheck.findings import Findings

# Name of the scalar.
NAME = "loss.keeps_ignored"

_FILLS = "MaskedFillBackward0"
_SELECTS, _INDEXES = "MaskedSelectBackward0", "IndexBackward0"
_MASKING = frozenset((_FILLS, _INDEXES, _SELECTS, "MulBackward0"))
# Between the choice and its mask: a sign, and [..., 0] of what a gather has kept.
_BETWEEN, _MOST_BETWEEN = frozenset(("NegBackward0", "SelectBackward0")), 2
_FEW = 4  # different ids that are left out, at least
_FEW_CLASSES = 16  # of a loss: its targets may be classes, one of them the background
_NO_REDUCTION = 0  # as torch numbers reductions
_MOST = 1 << 20  # elements that are read


class MaskedChoices:
    """Of one graph. Who takes one part by a mask and the rest by its inverse has two
    terms: both are looked at together."""

    def __init__(self) -> None:
        # What has chosen -> what masks it, and does it keep what is ignored?
        self._found: dict[Node, list[tuple[Node, bool]]] = {}

    def look(self, node: Node) -> None:
        # First by the names of nodes: every layer multiplies.
        chooser = _chooser(node) if node.name() in _MASKING else None
        said = None if chooser is None else _keeps_ignored(node, chooser)
        if chooser is not None and said is not None:
            self._found.setdefault(chooser, []).append((node, said))

    def say(self, found: Findings) -> None:
        for rows in self._found.values():
            found.at = rows[0][0]
            found.add(NAME, all(said for _, said in rows))


def _keeps_ignored(node: Node, chooser: Node) -> bool | None:
    """Are the elements that the mask keeps all of one id, several in a row of the batch,
    and those that it leaves out of many? None: it is no mask, or cannot be read."""
    is_loss = chooser.name() in NLL
    ids = saved(chooser, "target" if is_loss else "index")
    if ids is None or not 1 < ids.numel() <= _MOST:
        return None
    mask = _kept_by(node)
    if mask is None or mask.numel() != ids.numel() or mask.dim() == 0:
        return None
    taken, flat = mask.reshape(-1), ids.reshape(-1)
    rows = len(mask) if mask.dim() > 1 else 1
    if int(taken.sum()) < 2 * rows:
        return None
    of_kept = flat[taken]
    if bool((of_kept != of_kept[0]).any()):
        return False
    if not _are_runs(mask):
        return None  # single tokens that are judged, alike by chance
    few = _FEW_CLASSES if is_loss else _FEW
    return True if len(flat[~taken].unique()) >= few else None


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
    if node.name() == _SELECTS:
        return saved(node, "mask")
    if node.name() == _INDEXES:
        return _only_mask(kept(node, "indices"))
    if len(inputs(node)) != 1:
        return None
    is_second = node.next_functions[0][0] is None
    weights = saved(node, "self" if is_second else "other")
    if weights is None or weights.is_complex():
        return None
    taken = weights != 0
    return taken if bool((weights[taken] == 1).all()) else None


def _only_mask(indices: Any) -> torch.Tensor | None:
    if not isinstance(indices, (tuple, list)) or len(indices) != 1:
        return None
    mask = indices[0]
    if type(mask) is not torch.Tensor or mask.dtype != torch.bool or not mask.is_cpu:
        return None
    return mask.detach()


def _chooser(node: Node) -> Node | None:
    """What has taken the log-probabilities that it is given; None: it is given others."""
    givers = values_of(inputs(node)[:1])
    for _ in range(_MOST_BETWEEN):
        if len(givers) == 1 and givers[0].name() in _BETWEEN:
            givers = values_of(inputs(givers[0]))
    if len(givers) != 1:
        return None
    chooser = givers[0]
    if chooser.name() in NLL:
        each = integer(chooser, "reduction") == _NO_REDUCTION
        return chooser if each else None
    if chooser.name() != "GatherBackward0":
        return None
    logarithms = {giver.name() for giver in values_of(inputs(chooser)[:1])}
    return chooser if logarithms == {"LogSoftmaxBackward0"} else None
