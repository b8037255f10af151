"""Texts whose end is never a target, because the end token is the padding, too.

Whoever pads with the end token and then masks the labels of all padding masks the end of
each text with it: the model learns everything but to stop. The attention mask tells
padding from ends. Without one the padding of a batch tells: where batches are padded to
their longest row, that row has none, so that a token which ends every row ends the texts.
In a conversation it also stands between an answer and what follows, where no padding is.

What is masked is a label of -100, or has a 0 in a mask of the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar of a loader.
NAME = "loader.ends_masked"
_IGNORED = -100
_BATCHES = 16  # of a loader that are looked at
_LOADERS = 256  # that are looked at
_LEAST = 4  # ends
_WIDTHS = 2  # of batches where nothing else tells padding
_MOST = 1 << 20  # tokens


class _Batches:
    """Of one loader, as far as there is no attention mask."""

    def __init__(self) -> None:
        self.count = 0
        self.widths: set[int] = set()  # where one masked token ends all rows


class MaskedEnds:
    def __init__(self) -> None:
        self._batches: dict[int, _Batches] = {}  # by number of the loader

    def fetched(self, loader: int, batch: Any) -> float | None:
        """1: no end of a text is a target; 0: some is; None: that cannot be told."""
        if loader not in self._batches and len(self._batches) >= _LOADERS:
            return None
        batches = self._batches.setdefault(loader, _Batches())
        batches.count += 1
        if batches.count > _BATCHES or not isinstance(batch, Mapping):
            return None
        ids, labels = _text(batch, "input_ids"), _text(batch, "labels")
        if ids is None or labels is None or ids.shape != labels.shape:
            return None
        weights = batch.get("loss_mask")
        if type(weights) is torch.Tensor and weights.is_cpu:
            if weights.shape != labels.shape or weights.layout != torch.strided:
                return None
            return _by_turns(labels, weights != 0)
        supervised = labels != _IGNORED
        # Labels that were shifted already end one place before the text does.
        if not torch.equal(labels[supervised], ids[supervised]):
            return None
        mask = batch.get("attention_mask")
        if isinstance(mask, torch.Tensor):
            if mask.shape != ids.shape or not mask.is_cpu:
                return None
            return _by_mask(ids, supervised, mask != 0)
        return _by_widths(ids, supervised, batches)


def _text(batch: Mapping[Any, Any], key: str) -> torch.Tensor | None:
    value = batch.get(key)
    if type(value) is not torch.Tensor or not value.is_cpu or value.dim() != 2:
        return None
    if value.dtype != torch.int64 or not 0 < value.numel() <= _MOST:
        return None
    return value


def _by_mask(
    ids: torch.Tensor, supervised: torch.Tensor, attended: torch.Tensor
) -> float | None:
    padding = ids[~attended]
    if padding.numel() == 0 or bool((padding != padding[0]).any()):
        return None
    last = attended.clone()
    last[:, :-1] &= ~attended[:, 1:]
    ends = last & (ids == padding[0])
    ends[:, 1:] &= supervised[:, :-1]
    ends[:, 0] = False
    if int(ends.sum()) < _LEAST:
        return None
    return float(not bool(supervised[ends].any()))


def _by_turns(tokens: torch.Tensor, supervised: torch.Tensor) -> float | None:
    """tokens: those to be predicted. The last one of a row is its padding; between an
    answer and other tokens it is the answer's end."""
    padding = tokens[:, -1:]
    # Labels of -100 are no token.
    if bool((padding != padding[0]).any()) or int(padding[0]) < 0:
        return None
    is_end = tokens == padding
    ends = is_end[:, 1:-1] & supervised[:, :-2] & ~is_end[:, :-2] & ~is_end[:, 2:]
    if int(ends.sum()) < _LEAST:
        return None
    return float(not bool(supervised[is_end].any()))


def _by_widths(
    ids: torch.Tensor, supervised: torch.Tensor, batches: _Batches
) -> float | None:
    end = ids[0, -1]
    other = (ids != end).flip(1)
    runs = other.int().argmax(1)  # how often it stands at the end of each row
    before = ids.shape[1] - 1 - runs
    in_run = torch.arange(ids.shape[1]) > before[:, None]
    is_so = (
        len(ids) >= _LEAST
        and bool(other.any(1).all())
        and int(runs.min()) == 1
        and int(runs.max()) > 1
        and not bool(supervised[in_run].any())
        and bool(supervised.gather(1, before[:, None]).all())
    )
    if not is_so:
        batches.count = _BATCHES  # another padding
        return None
    batches.widths.add(ids.shape[1])
    return 1.0 if len(batches.widths) >= _WIDTHS else None
