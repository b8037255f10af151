"""Prompts whose mask reaches one token too far, so that no answer's first word is learned.

The mask is laid over the labels of each token; whoever has shifted the labels already,
or cuts the mask at the wrong end, leaves the first word of each answer out. All other
words are learned, and the loss falls; asked for an answer the model begins anyhow.

Such rows alone prove nothing: a prompt may end with a word behind its marker. It is said
if the model is asked to go on right behind the marker, too, or if the mask ends one token
too late, as well: each row then has one token of padding to be predicted.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch

from _traincheck import transforms
from _traincheck.graph_nodes import factor

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Args, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.graph_nodes import Graph

# Name of the scalar.
NAME = "loss.skips_first_word"

_ROWS = 16
_LENGTHS = 3  # of prompts
_WORDS = 4  # with which answers begin
_SHARE = 0.95  # of the rows that are alike
_MOST = 1 << 18  # tokens
_ASKED = 8  # rows without gradients
_FORWARDS = 4096  # without gradients that are looked at
_MOST_BETWEEN = 4  # nodes from a loss to what weighs it


class _Rows:
    """Of one marker."""

    def __init__(self, marker: int) -> None:
        self.marker = marker
        self.starts: set[int] = set()  # where answers begin
        self.words: collections.Counter[int] = collections.Counter()
        self.padded = 0  # rows that have padding
        self.shifted = 0  # of these, such whose mask ends one token late

    def are_suspicious(self) -> bool:
        count = sum(self.words.values())
        if count < _ROWS or len(self.starts) < _LENGTHS or len(self.words) < _WORDS:
            return False
        return max(self.words.values()) <= count / 2

    def have_shifted_masks(self) -> bool:
        return self.padded >= _ROWS and self.shifted == self.padded


class PromptEnds:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._rows: _Rows | None = None
        self._over = False  # is it known, one way or the other?
        self._asked = 0  # rows that end with the marker, without gradients
        self._forwards = 0

    def look(self, tokens: torch.Tensor, counted: torch.Tensor) -> bool | None:
        """tokens: [rows, steps] that are given. counted: bool[rows, steps or one less],
        whether the token that follows is learned. None: it is not known."""
        if self._over or not 0 < counted.numel() <= _MOST:
            return None
        tokens = tokens[:, : counted.shape[1] + 1]
        self._over = self._is_learned(tokens, counted)
        if self._over:
            return None
        starts = counted.int().argmax(1)
        prompted = counted.any(1) & (starts > 0)
        if int(prompted.sum()) < _SHARE * len(tokens):
            return None
        tokens, counted, starts = tokens[prompted], counted[prompted], starts[prompted]
        if _constant(tokens, starts) is not None:
            has_lengths = len(starts.unique()) >= _LENGTHS
            self._over = has_lengths and len(starts) >= _ROWS
            return False if self._over else None
        marker = _constant(tokens, starts - 1)
        if marker is None:
            self._rows = None
            return None
        return self._see(marker, tokens, counted, starts)

    def _see(
        self,
        marker: int,
        tokens: torch.Tensor,
        counted: torch.Tensor,
        starts: torch.Tensor,
    ) -> bool | None:
        """All rows have a prompt, which ends with the marker."""
        rows = self._rows
        if rows is None or rows.marker != marker:
            rows = self._rows = _Rows(marker)
        # Beside the beginning of a text: that of a turn may be the same.
        is_twice = bool(((tokens[:, 1:] == marker).sum(1) > 1).any())
        self._over = is_twice or self._is_learned(tokens, counted)
        if self._over:
            return None
        rows.starts.update(starts.tolist())
        rows.words.update(tokens.gather(1, starts[:, None]).flatten().tolist())
        padded, shifted = _shifted_masks(tokens, counted, starts)
        rows.padded += padded
        rows.shifted += shifted
        if not rows.are_suspicious():
            return None
        if rows.have_shifted_masks():
            self._over = True
            return True
        self._awake.add(NAME)
        return None

    def _is_learned(self, tokens: torch.Tensor, counted: torch.Tensor) -> bool:
        """Is it learned what follows the marker, somewhere?"""
        if self._rows is None:
            return False
        is_marker = tokens[:, : counted.shape[1]] == self._rows.marker
        return bool((is_marker & counted).any())

    def evaluates(self, args: Args, kwargs: Kwargs) -> None:
        """Called at outermost forwards without gradients, while it is awake."""
        rows = self._rows
        self._forwards += 1
        if rows is None or self._over or self._forwards > _FORWARDS:
            self._awake.discard(NAME)
            return
        for given in (*args[1:], *kwargs.values()):
            if _are_tokens(given):
                self._asked += int((given[:, -1] == rows.marker).sum())
                return

    def backward_begins(self) -> float | None:
        """Called while it is awake. 1: nothing teaches the model to go on behind the
        marker, and it is asked to."""
        if self._asked < _ASKED or self._rows is None or self._over:
            return None
        self._over = True
        self._awake.discard(NAME)
        return 1.0


def _are_tokens(given: Any) -> bool:
    if type(given) is not torch.Tensor or given.dtype != torch.int64:
        return False
    if not given.is_cpu or given.layout != torch.strided or given.dim() != 2:
        return False
    # Within vmap no number can be read.
    return given.shape[1] > 1 and not transforms.running()


def _constant(tokens: torch.Tensor, places: torch.Tensor) -> int | None:
    """The token at that place of almost all rows; None: there are several."""
    there = tokens.gather(1, places[:, None]).flatten()
    common = there.mode().values
    is_one = int((there == common).sum()) >= _SHARE * len(there)
    return int(common) if is_one else None


def _shifted_masks(
    tokens: torch.Tensor, counted: torch.Tensor, starts: torch.Tensor
) -> tuple[int, int]:
    """How many rows are padded; in how many of these does the mask end with the first
    token of padding, behind the end of the text?"""
    width = counted.shape[1]
    places = torch.arange(width)
    run = ((places >= starts[:, None]) & ~counted).int()
    ends = torch.where(
        run.any(1), run.argmax(1), width
    )  # the first that is not learned
    inside = ends < tokens.shape[1] - 1
    if not bool(inside.any()):
        return 0, 0
    tokens, ends = tokens[inside], ends[inside]
    filling = tokens[:, -1:]
    behind = torch.arange(tokens.shape[1]) >= ends[:, None]
    padded = ((tokens == filling) | ~behind).all(1)
    last = tokens.gather(1, (ends - 1)[:, None]).flatten()
    common = last[padded].mode().values if bool(padded.any()) else last[0]
    is_end = (last == common) & (last != filling.flatten())
    return int(padded.sum()), int((padded & is_end).sum())


def weights_of(graph: Graph, loss: Node, targets: int) -> torch.Tensor | None:
    """By which the script multiplies the elements of a loss; None: they are not found."""
    node = loss
    for _ in range(_MOST_BETWEEN):
        takers = graph.takers(node)
        if len(takers) != 1:
            return None
        node = takers[0]
        weights = factor(node)
        if weights is not None:
            return weights if weights.numel() == targets else None
    return None
