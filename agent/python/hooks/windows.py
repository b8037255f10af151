"""Pieces of the windows that a series is cut into, to be compared between batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.batch_tensors import tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_ROWS = 64  # of a batch
_PIECE = 8  # points; a window has more
_VALUES = 4  # of a point, that are looked at
_DISTINCT = 6  # values of a piece: others may be equal by chance
_PLACES = 32  # in a window where a piece may begin
_TYPES = (torch.float32, torch.float64)


def windows(batch: Any) -> Iterator[list[int]]:
    """Of its first tensor that is one of series, for each row: hashes of pieces, one for
    each point that it may begin at. The first begins the window, the last ends it."""
    for tensor in tensors_of(batch):
        if tensor.dtype not in _TYPES or tensor.dim() not in (2, 3):
            continue
        if tensor.shape[1] <= _PIECE:
            continue
        rows = tensor[:_ROWS].reshape(min(len(tensor), _ROWS), tensor.shape[1], -1)
        for row in rows[:, :, :_VALUES].resolve_neg().contiguous():
            if _varies(row[:_PIECE]) and _varies(row[-_PIECE:]):
                yield list(_pieces(row))
        return


def _varies(piece: torch.Tensor) -> bool:
    return len(set(piece.flatten().tolist())) >= _DISTINCT


def _pieces(row: torch.Tensor) -> Iterator[int]:
    """row: float[points, values]."""
    content = row.view(torch.uint8).numpy().tobytes()
    point = len(content) // len(row)
    last = len(row) - _PIECE
    for begin in (*range(min(last, _PLACES)), last):
        yield hash(content[begin * point : (begin + _PIECE) * point])
