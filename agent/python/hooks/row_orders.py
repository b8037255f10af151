"""Rows that a model reads in another order than their targets have.

Texts are sorted by length to be packed. Who forgets to sort the labels as well, or to
put the states back in order, trains each text with the label of another one. The batch,
as the loader gave it, tells both orders, and where texts begin that share a row.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch

from _traincheck import packed_texts
from _traincheck.batch_tensors import tensors_of
from _traincheck.graph_nodes import saved, walk

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node

    from _traincheck.balanced_draws import Drawn
    from _traincheck.prompt_ends import PromptEnds

# Name of the scalar.
NAME = "loss.rows_reordered"

_BATCHES = 8  # of a loader that are looked at
_LEAST = 4  # rows
_MOST = 1 << 16  # tokens
_MOST_POSITIONS = 1 << 18
_MOST_TENSORS = 8  # of one kind, in a batch
_MAX_NODES = 4096  # of a loss
_EMBEDDING = "EmbeddingBackward0"
# What may put rows into another order.
_ORDERS = frozenset(("GatherBackward0", "IndexBackward0", "IndexSelectBackward0"))


class RowOrders:
    def __init__(self, prompt_ends: PromptEnds) -> None:
        self.prompt_ends = prompt_ends
        self._fetched: collections.Counter[int] = collections.Counter()
        # Of the batch that was fetched last: int64[rows, positions], and one a row.
        self._tokens: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        # Positions that begin anew with each text of a row: see packed_texts.py.
        self._positions: list[torch.Tensor] = []
        self._one_sample = False  # has a part of it rows, and one of them?
        self.drawn: Drawn | None = None  # the weights that its rows were drawn with

    def of_this_batch(self) -> RowOrders:
        """What is known now, for somebody who looks when the next one has come."""
        known = RowOrders(self.prompt_ends)
        known._tokens, known._targets = self._tokens, self._targets
        known._positions = self._positions
        known._one_sample = self._one_sample
        known.drawn = self.drawn
        return known

    def fetched(self, loader: int, batch: Any, drawn: Drawn | None = None) -> None:
        self.drawn = drawn
        self._tokens, self._targets, self._positions = [], [], []
        self._one_sample = False
        if self._fetched[loader] == _BATCHES:
            return
        self._fetched[loader] += 1
        for tensor in tensors_of(batch):
            one = tensor.dim() >= 2 and len(tensor) == 1
            self._one_sample = self._one_sample or one
            if _are_positions(tensor) and len(self._positions) < _MOST_TENSORS:
                self._positions.append(tensor.clone())
            if len(tensor.shape) == 0 or not _LEAST <= len(tensor) <= _MOST:
                continue
            if tensor.numel() == len(tensor):
                if len(self._targets) < _MOST_TENSORS:
                    self._targets.append(tensor.flatten().clone())
            elif tensor.dim() == 2 and tensor.numel() <= _MOST:
                plenty = len(self._tokens) == _MOST_TENSORS
                if tensor.dtype is torch.int64 and not plenty:
                    self._tokens.append(tensor.clone())

    def gives_targets(self, samples: int) -> bool:
        """Has the batch that was fetched last one target for each of so many samples?"""
        return any(len(targets) == samples for targets in self._targets)

    def has_one_sample(self) -> bool:
        """Has it a part of a single row, beside its targets?"""
        return self._one_sample

    def texts_in(self, tokens: torch.Tensor) -> torch.Tensor | None:
        """As packed_texts.texts_of, beside these tokens; None: it is not known."""
        for positions in self._positions:
            if positions.shape == tokens.shape and not torch.equal(positions, tokens):
                return packed_texts.texts_of(positions)
        return None

    def are_apart(
        self, tokens: torch.Tensor, losses: list[Node], reached: set[Node]
    ) -> bool | None:
        """tokens: [rows, positions] that a model was given; reached: what was computed
        of them. None: they are in the order of the batch, or it cannot be told, as
        where the vectors of both orders are mixed."""
        orders = (_order(before, tokens) for before in self._tokens)
        order = next((one for one in orders if one is not None), None)
        if order is None or any(node.name() in _ORDERS for node in reached):
            return None
        said = {self._is_apart(loss, order) for loss in losses if loss in reached}
        if True not in said or False in said:
            return False if False in said else None
        return None if any(map(self._reads_in_order, losses)) else True

    def _is_apart(self, loss: Node, order: list[int]) -> bool | None:
        """Are its targets in the batch's own order, not in this one?"""
        given = saved(loss, "target")
        for targets in self._targets:
            if given is None or given.numel() != len(targets):
                continue
            if torch.equal(targets[order], targets):
                continue
            if bool((given.flatten() == targets).all()):
                return True
            if bool((given.flatten() == targets[order]).all()):
                return False
        return None

    def _reads_in_order(self, loss: Node) -> bool:
        """Are rows of the batch read in its own order, too?"""
        for node in walk([loss], _MAX_NODES):
            read = saved(node, "indices") if node.name() == _EMBEDDING else None
            if read is None or read.dtype != torch.int64:
                continue
            if any(torch.equal(read, one) for one in self._tokens):
                return True
        return False


def _are_positions(tensor: torch.Tensor) -> bool:
    if tensor.numel() > _MOST_POSITIONS:
        return False
    return packed_texts.texts_of(tensor) is not None


def _order(before: torch.Tensor, after: torch.Tensor) -> list[int] | None:
    """Of [rows, positions]: after = before[order], which may have been cut to its
    longest rows. None: it has other rows, the same order, or equal rows."""
    if len(before) != len(after) or after.shape[1] > before.shape[1]:
        return None
    before = before[:, : after.shape[1]]
    if torch.equal(before, after):
        return None
    places = {tuple(row): place for place, row in enumerate(before.tolist())}
    order = [places.get(tuple(row), -1) for row in after.tolist()]
    return order if sorted(order) == list(range(len(before))) else None
