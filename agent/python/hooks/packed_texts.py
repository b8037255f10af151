"""Texts that are packed into one row, and attend to each other.

Several short texts fill a row of a batch; their positions begin at 0 again with each.
Each is to see itself alone: a plain causal mask lets it read the ones before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from _traincheck.attention import SelfAttention

# Name of the scalar.
NAME = "loss.attends_across_texts"

_MOST = 1 << 22  # pairs of tokens that are looked at
_LEAST = 3  # tokens of a text behind another one


def texts_of(positions: torch.Tensor) -> torch.Tensor | None:
    """The number of its text within its row, for each token: int64[rows, tokens].

    positions: int64[rows, tokens]; None: they are not those of packed texts.
    """
    if positions.dim() != 2 or positions.dtype != torch.int64:
        return None
    if positions.shape[1] <= _LEAST or bool((positions[:, 0] != 0).any()):
        return None
    begins = positions == 0
    goes_on = positions[:, 1:] == positions[:, :-1] + 1
    if not bool((goes_on | begins[:, 1:]).all()):
        return None
    texts = begins.cumsum(1)
    # Padding is often a row of zeros: a text has several tokens.
    behind = (texts > 1) & (positions >= _LEAST - 1)
    if not bool(behind.any()) or _are_of_a_grid(positions):
        return None
    return texts


def _are_of_a_grid(positions: torch.Tensor) -> bool:
    """Have all texts one length, but for last ones that are cut? Hours of days and
    columns of pictures begin anew like that."""
    ends = positions[:, :-1][positions[:, 1:] == 0]
    whole = ends[ends >= _LEAST - 1]
    if len(whole) == 0 or bool((whole != whole[0]).any()):
        return False
    return bool(positions.max() == whole[0])


def sees_others(one: SelfAttention, texts: torch.Tensor) -> bool | None:
    """Does a token see one of another text? None: not known."""
    if one.sees_all_before():
        return True
    rows, length = texts.shape
    if rows * length**2 > _MOST:
        return None
    same = texts[:, :, None] == texts[:, None, :]
    # Padding, each position of which is a text by itself, does not count.
    sizes = same.sum(2)
    real = sizes >= _LEAST
    others = ~same & real[:, :, None] & real[:, None, :]
    return one.sees_any(others)
