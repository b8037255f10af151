"""Attention of a sequence to itself or to another, read from a loss's graph.

Hand-written attention leaves the softmax of its scores, torch's own functions leave
that or a node of their own with the mask. What a query cannot see has weight 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import (
    FUSED_ATTENTION,
    PRODUCTS,
    SOFTMAX,
    factor,
    inputs,
    keeps_none,
    saved,
    saved_shape,
    shape,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.graph_nodes import Graph

# Of a fused attention, by the device that it is for.
_MASKS = ("attn_mask", "attn_bias")
_UNSEEN = 1e-6  # weight that a mask of some finite number leaves, or less
_HIDDEN = -1e2  # what a mask adds where nothing is to be seen, or less
_QUERIES = 8  # that are looked at
_MOST = 1 << 22  # weights that are looked at
_MAX_BETWEEN = 12  # nodes from the softmax down to the product of queries and keys


class Attention:
    """Queries of one attention, and the keys that they see."""

    def __init__(self, node: Node, sizes: tuple[int, ...], keys: Node) -> None:
        self.node = node
        self.sizes = sizes  # of the weights: [..., queries, keys]
        self.length = sizes[-1]  # keys
        self.keys = keys  # where the keys come from
        self._masks: list[Node] = []  # products with what hides keys after the softmax

    def find_masks(self, graph: Graph) -> None:
        """Masks by which the weights are multiplied, to be divided by their sum."""
        if self.node.name() in SOFTMAX:
            takers = graph.takers(self.node)
            self._masks = [one for one in takers if shape(one) == self.sizes]

    def keys_seen(self, sequences: int) -> torch.Tensor | None:
        """bool[sequences, keys]: does any of some queries see the key? None: all
        sequences see the same, or it is not known."""
        first = self._of_sequences(sequences)
        if first is None:
            return None
        few = first[:, :: max(1, first.shape[1] // _QUERIES)]
        return self._is_visible(few).any(1)

    def adds_ones(self) -> bool | None:
        """Is a mask of zeros and ones added to the scores? None: there is no mask
        that is added, or it is not known."""
        mask = self._mask()
        if mask is None or not mask.is_floating_point():
            return None
        first = mask[(0,) * (mask.dim() - 2)]
        few = first[: max(1, _MOST // max(1, first.shape[-1]))]
        ones = few == 1
        if not bool((ones | (few == 0)).all()):
            return False
        return _hides(ones) or _hides(~ones)

    def _sees_all(self) -> bool:
        fused = self.node.name() not in SOFTMAX
        return fused and all(keeps_none(self.node, name) for name in _MASKS)

    def _mask(self) -> torch.Tensor | None:
        masks = (saved(self.node, name) for name in _MASKS)
        return next((mask for mask in masks if mask is not None), None)

    def _scores(self) -> torch.Tensor | None:
        """Weights, or the mask of a fused attention: [..., queries, keys], where a
        size of 1 stands for all."""
        if self.node.name() in SOFTMAX:
            return self._masked(saved(self.node, "result"))
        return self._mask()

    def _masked(self, weights: torch.Tensor | None) -> torch.Tensor | None:
        for product in self._masks:
            mask = factor(product)
            if weights is None or weights.numel() > _MOST or mask is None:
                continue
            if mask.is_complex() or mask.numel() > weights.numel():
                continue
            # Dropout multiplies by more than 1.
            if bool(((mask == 0) | (mask == 1)).all()):
                weights = weights * mask
        return weights

    def _of_sequences(
        self, sequences: int, shared: bool = False
    ) -> torch.Tensor | None:
        """_scores() of the first head, as [sequences, queries, keys]; shared: it may
        be one for all of them. None: not known."""
        layouts = self._layouts(sequences, shared)
        return layouts[0] if layouts else None

    def _layouts(self, sequences: int, shared: bool = False) -> list[torch.Tensor]:
        """Those that the first dimension may have: the heads of a sequence beside each
        other, or the sequences of a head; empty: not known."""
        scores = self._scores()
        if scores is None or scores.dim() < 2:
            return []
        if shared and scores.numel() == scores.shape[-2] * scores.shape[-1]:
            return [scores.reshape(1, *scores.shape[-2:])]
        if scores.dim() < 3 or scores.shape[0] % sequences != 0:
            return []
        # Heads are a dimension, or lie beside each other in the first.
        heads = scores.shape[0] // sequences
        if scores.dim() == 4:
            layouts = [scores[:, 0]]
        elif heads == 1:
            layouts = [scores]
        else:
            layouts = [scores[::heads], scores[:sequences]]
        fit = layouts[0].shape[-1] == self.length
        return layouts if fit and len(layouts[0]) == sequences else []

    def _is_visible(self, scores: torch.Tensor) -> torch.Tensor:
        if scores.dtype is torch.bool:
            return scores
        return scores > (_UNSEEN if self.node.name() in SOFTMAX else _HIDDEN)


class SelfAttention(Attention):
    """One attention of `length` positions to themselves."""

    def looks_ahead(self) -> bool | None:
        """Does a query see a key behind its own position? Of the first sequence and
        head; None: not known."""
        if getattr(self.node, "_saved_is_causal", False):
            return False
        if self._sees_all():
            return True
        scores = self._scores()
        if scores is None:
            return None
        return bool(self._seen_at_first(scores).triu(1).any())

    def shows_targets(self, counted: torch.Tensor | None) -> bool | None:
        """Does a query see what lies behind its own position, where its target is? Of
        the first sequence and head. counted: bool[queries], has the query a target;
        None: the script weighs them, and all must see the position behind. None: not
        known."""
        if getattr(self.node, "_saved_is_causal", False):
            return False
        scores = None if self._sees_all() else self._scores()
        if scores is None:
            return True if self._sees_all() else None
        seen = self._seen_at_first(scores)
        # A mask of finite numbers that hides all keys leaves them the same weight.
        alike = seen.all(1) & self._are_alike(scores)
        if not bool(alike.all()):
            seen = seen & ~alike[:, None]
        if counted is None:
            is_key = seen.any(0)[1:]  # the others are padding
            return bool(is_key.any()) and bool(seen.diagonal(1)[is_key].all())
        queries = counted[: self.length].nonzero().flatten()
        return bool(seen.triu(1)[queries].any()) if len(queries) > 0 else None

    def sees_later_only(self) -> bool | None:
        """Does a query see keys behind its own position, and none sees another? Of the
        first sequence and head; None: not known."""
        if getattr(self.node, "_saved_is_causal", False) or self._sees_all():
            return False
        scores = self._scores()
        if scores is None:
            return None
        seen = self._seen_at_first(scores)
        # A query that sees no key at all may have the same weight for each.
        seen = seen & ~(seen.all(1) & self._are_alike(scores))[:, None]
        return bool(seen.any()) and not bool(seen.tril().any())

    def _first(self, scores: torch.Tensor) -> torch.Tensor:
        first = scores[(0,) * (scores.dim() - 2)]
        return first.expand(self.length, self.length)

    def _seen_at_first(self, scores: torch.Tensor) -> torch.Tensor:
        """bool[queries, keys], of the first sequence and head."""
        return self._is_visible(self._first(scores))

    def _are_alike(self, scores: torch.Tensor) -> torch.Tensor:
        """bool[queries]: have all keys one weight?"""
        if self.node.name() not in SOFTMAX:
            return scores.new_zeros(self.length, dtype=torch.bool)
        first = self._first(scores)
        return (first == first[:, :1]).all(1)

    def sees_all_before(self) -> bool:
        """Does a query see all keys before its own position, for certain?"""
        return bool(getattr(self.node, "_saved_is_causal", False)) or self._sees_all()

    def sees_padding(self, real: torch.Tensor) -> bool | None:
        """Does a position of a text see padding? real: bool[sequences, keys]; None:
        not known."""
        if real.numel() * self.length > _MOST:
            return None
        return self.sees_any(real[:, :, None] & ~real[:, None, :])

    def sees_any(self, pairs: torch.Tensor) -> bool | None:
        """Does a query see a key, in one of these pairs? pairs: bool[sequences,
        queries, keys]; None: not known."""
        sequences, length = pairs.shape[:2]
        if length != self.length or pairs.numel() > _MOST:
            return None
        if getattr(self.node, "_saved_is_causal", False):
            seen = pairs.new_ones(length, length).tril().expand(sequences, -1, -1)
        elif self._sees_all():
            seen = pairs.new_ones(length, length).expand(sequences, -1, -1)
        else:
            return self._see_any(pairs)
        return bool((seen & pairs).any())

    def _see_any(self, pairs: torch.Tensor) -> bool | None:
        """In all layouts that there may be?"""
        layouts = self._layouts(len(pairs), shared=True)
        if not layouts or not {1, self.length}.issuperset(layouts[0].shape[1:]):
            return None  # kernels fill masks up
        return all(
            bool((self._is_visible(one).expand(pairs.shape) & pairs).any())
            for one in layouts
        )


def _hides(seen: torch.Tensor) -> bool:
    """bool[queries, keys]: do all queries see the same keys, or those of them up to
    their own position? Padding may see nothing. A bonus for neighbours is another
    pattern."""
    if bool(seen.all()) or not bool(seen.any()):
        return False
    keys, queries = seen.any(0), seen.any(1)
    if not bool(queries.all()) and not torch.equal(queries, keys):
        return False
    whole = queries[:, None] & keys
    return any(torch.equal(seen, one) for one in (whole, whole.tril()))


def find(node: Node) -> Attention | None:
    """None: the node is no attention."""
    name = node.name()
    if name in SOFTMAX:
        sizes, keys = shape(node), _keys_of_scores(node)
    elif name.startswith(FUSED_ATTENTION):
        sizes, keys = _fused(node)
    else:
        return None
    if sizes is None or keys is None or len(sizes) < 3:
        return None
    if sizes[-1] < 2:
        return None
    of = SelfAttention if sizes[-1] == sizes[-2] else Attention
    return of(node, sizes, keys)


def _fused(node: Node) -> tuple[tuple[int, ...] | None, Node | None]:
    query, key = saved_shape(node, "query"), saved_shape(node, "key")
    if query is None or key is None or len(node.next_functions) < 2:
        return None, None
    return (*query[:-1], key[-2]), node.next_functions[1][0]


def _keys_of_scores(softmax: Node) -> Node | None:
    node = softmax
    for _ in range(_MAX_BETWEEN):
        if node.name() in PRODUCTS:
            # baddbmm is given a mask first.
            following = node.next_functions
            return following[-1][0] if len(following) >= 2 else None
        givers = inputs(node)[:1]
        if not givers:
            return None
        node = givers[0]
    return None
