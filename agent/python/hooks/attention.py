"""Attention of a sequence to itself, read from a loss's graph.

Hand-written attention leaves the softmax of its scores, torch's own functions leave
that or a node of their own with the mask. What a query cannot see has weight 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, saved, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_SOFTMAX = frozenset(("SoftmaxBackward0", "SafeSoftmaxBackward0"))
_FUSED = "ScaledDotProduct"
_PRODUCTS = frozenset(("BmmBackward0", "MmBackward0", "BaddbmmBackward0"))
_MAX_BETWEEN = 12  # nodes from the softmax down to the product of queries and keys


class SelfAttention:
    """One attention of `length` positions to themselves."""

    def __init__(self, node: Node, sizes: tuple[int, ...], keys: Node) -> None:
        self._node = node
        self.sizes = sizes  # of the weights: [..., queries, keys]
        self.length = sizes[-1]
        self.keys = keys  # where the keys come from

    def visible(self) -> torch.Tensor | None:
        """bool[..., queries, keys], without the sizes that do not matter; None: not
        known."""
        if self._node.name() in _SOFTMAX:
            weights = saved(self._node, "result")
            return None if weights is None else weights > 0
        if getattr(self._node, "_saved_is_causal", False):
            return torch.ones(self.length, self.length, dtype=torch.bool).tril()
        if getattr(self._node, "_saved_attn_mask", None) is None:
            return torch.ones(1, 1, dtype=torch.bool)
        mask = saved(self._node, "attn_mask")
        if mask is None:
            return None
        return mask if mask.dtype is torch.bool else mask > -1e4

    def looks_ahead(self) -> bool | None:
        """Does a query see a key behind its own position?"""
        visible = self.visible()
        if visible is None:
            return None
        whole = visible.expand(*visible.shape[:-2], self.length, self.length)
        return bool(whole.triu(1).any())

    def adds_ones(self) -> bool | None:
        """Is a mask of zeros and ones added to the scores? None: there is no mask
        that is added, or it is not known."""
        mask = saved(self._node, "attn_mask")
        if mask is None or not mask.is_floating_point():
            return None
        ones = mask == 1
        return bool((ones | (mask == 0)).all()) and bool(ones.any() and (~ones).any())


def find(node: Node) -> SelfAttention | None:
    """None: the node is no attention of a sequence to itself."""
    name = node.name()
    if name in _SOFTMAX:
        sizes, keys = shape(node), _keys_of_scores(node)
    elif name.startswith(_FUSED):
        sizes, keys = _fused(node)
    else:
        return None
    if sizes is None or keys is None or len(sizes) < 3:
        return None
    if sizes[-1] != sizes[-2] or sizes[-1] < 2:
        return None
    return SelfAttention(node, sizes, keys)


def _fused(node: Node) -> tuple[tuple[int, ...] | None, Node | None]:
    query, key = saved(node, "query"), saved(node, "key")
    if query is None or key is None or len(node.next_functions) < 2:
        return None, None
    sizes = (*query.shape[:-1], key.shape[-2])
    return tuple(map(int, sizes)), node.next_functions[1][0]


def _keys_of_scores(softmax: Node) -> Node | None:
    node = softmax
    for _ in range(_MAX_BETWEEN):
        if node.name() in _PRODUCTS:
            # baddbmm is given a mask first.
            following = node.next_functions
            return following[-1][0] if len(following) >= 2 else None
        givers = inputs(node)[:1]
        if not givers:
            return None
        node = givers[0]
    return None
