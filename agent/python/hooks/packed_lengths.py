"""Texts that are packed with the lengths of other texts.

pack_padded_sequence takes the lengths in the order of the rows. Where only one of both
was sorted, some texts are cut and the padding of others is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, integer, saved

if TYPE_CHECKING:
    from collections.abc import Iterable
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.packs_other_lengths"

_PACKED = "PackPaddedSequenceBackward0"
_SORTED = "IndexSelectBackward0"
_DEPTH = 8
# Between an embedding and the packing; rows stay where they are.
_HAND_ON = frozenset(
    (
        "CloneBackward0",
        "MulBackward0",  # dropout
        "NativeDropoutBackward0",
        "NativeLayerNormBackward0",
        "TransposeBackward0",
    )
)


def belong_to_others(
    embedding: Node, real: torch.Tensor, reached: Iterable[Node]
) -> bool | None:
    """real: bool[samples, positions] of texts that padding fills up; reached: what was
    computed of them. None: they are not packed, or it cannot be told."""
    lengths = real.sum(1)
    if int(lengths.min()) == int(lengths.max()):
        return None
    found = None
    for node in reached:
        if node.name() == _PACKED:
            given = _lengths(node, embedding, len(real))
            if given is not None:
                cut = bool((given < lengths).any())
                found = bool(found) or (cut and bool((given > lengths).any()))
    return found


def _lengths(node: Node, embedding: Node, samples: int) -> torch.Tensor | None:
    """int64[samples], in the order of the embedding's rows."""
    sizes = saved(node, "result1")  # of the batch, at each position
    if sizes is None or int(sizes[0]) != samples:
        return None
    given = (sizes[None] > torch.arange(samples)[:, None]).sum(1)
    giver = inputs(node)[0]
    if giver.name() == _SORTED:
        order = saved(giver, "index")
        if order is None or len(order) != samples:
            return None
        if integer(giver, "dim") != (0 if _is_batch_first(node) else 1):
            return None
        given = torch.empty_like(given).scatter_(0, order, given)
        giver = inputs(giver)[0]
    for _ in range(_DEPTH):
        if giver is embedding:
            return given
        givers = inputs(giver)
        if giver.name() not in _HAND_ON or not givers:
            return None
        giver = givers[0]
    return None


def _is_batch_first(node: Node) -> bool:
    return bool(getattr(node, "_saved_batch_first", False))
