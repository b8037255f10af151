"""Tokens that a model is given, beside the targets of a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import integer
from _traincheck.prompt_ends import weights_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.graph_nodes import Graph

_LEAST = 16  # tokens that are compared
_DISTINCT = 3  # of them
_SAME = 0.6  # that words are dropped from
_NO_REDUCTION = 0


class Pairs:
    """Tokens that are given and targets of the same batch."""

    def __init__(
        self, tokens: torch.Tensor, targets: torch.Tensor, loss: Node, by_steps: bool
    ) -> None:
        """tokens: [sequences, steps], or [steps, sequences] if `by_steps`; targets in
        the same order, of any shape."""
        self.given = tokens.t() if by_steps else tokens
        self._targets = targets.reshape(-1)
        self._ignored = integer(loss, "ignore_index")
        self.loss = loss
        # Does the script weigh the targets itself?
        self.are_weighed = integer(loss, "reduction") == _NO_REDUCTION
        self._by_steps = by_steps
        self.steps = self.given.shape[1]

    def where_equal(self, ahead: int, but_ends: bool = False) -> torch.Tensor | None:
        """bool[sequences, steps]: which targets count, if they are the tokens
        themselves, `ahead` steps later. They may end with the last token that is given,
        or with one behind it. but_ends: the last target of each sequence may be
        another one. None: they are others, or too few to tell."""
        for length in range(self.steps - ahead, self.steps + 1):
            grid = self._grid(length)
            if grid is None:
                continue
            kept = min(length, self.steps - ahead)
            grid, given = grid[:, :kept], self.given[:, ahead : ahead + kept]
            counted = grid != self._ignored
            compared = counted
            if but_ends:  # tokens that count behind are further ones
                behind = counted.flip(1).cumsum(1).flip(1)
                compared = counted & (behind > 1)
            values = grid[compared]
            if len(values) >= _LEAST and bool((values == given[compared]).all()):
                return counted if len(values.unique()) >= _DISTINCT else None
        return None

    def are_repeated(self) -> bool:
        """Are the targets the tokens themselves, but for one token that some of them
        were replaced with? Those that were not count, too."""
        grid = self._grid(self.steps)
        if grid is None:
            return False
        counted = grid != self._ignored
        same = counted & (grid == self.given)
        count = int(same.sum())
        if count < _LEAST or count < _SAME * int(counted.sum()):
            return False
        replaced = self.given[counted & ~same]
        if len(replaced) and bool((replaced != replaced[0]).any()):
            return False
        return len(grid[same].unique()) >= _DISTINCT

    def weights(self, graph: Graph) -> torch.Tensor | None:
        """[sequences, steps or one less], of the targets; None: not found."""
        weights = weights_of(graph, self.loss, self._targets.numel())
        length = self._targets.numel() // len(self.given)
        return None if weights is None else self._as_grid(weights.reshape(-1), length)

    def _grid(self, length: int) -> torch.Tensor | None:
        """[sequences, length]; None: the targets are not so many."""
        if length < 2 or self._targets.numel() != len(self.given) * length:
            return None
        return self._as_grid(self._targets, length)

    def _as_grid(self, of_targets: torch.Tensor, length: int) -> torch.Tensor:
        if self._by_steps:
            return of_targets.view(length, -1).t()
        return of_targets.view(-1, length)
