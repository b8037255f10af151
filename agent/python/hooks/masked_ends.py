"""Texts whose end is never a target, because the end token is the padding, too.

Whoever pads with the end token and then masks the labels of all padding masks the end of
each text with it: the model learns everything but to stop. The attention mask tells
padding from ends. Without one, or with one that was made of the tokens, the padding of a
batch tells: where batches are padded to their longest row, that row has none, so that a
token which ends every row ends the texts. In a conversation it also stands between an
answer and what follows, where no padding is.

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
# Where there is a mask, a padding of its own may fill up to a multiple of a width.
_WIDTHS_OF_A_MASK = 4
_PARTS = 8  # of a batch
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
        if batches.count > _BATCHES:
            return None
        named = isinstance(batch, Mapping) and {"input_ids", "labels"} <= batch.keys()
        parts = dict(batch) if named else _parts(batch)
        ids, labels = _text(parts, "input_ids"), _text(parts, "labels")
        if ids is None or labels is None or ids.shape != labels.shape:
            return None
        weights = parts.get("loss_mask")
        if type(weights) is torch.Tensor and weights.is_cpu:
            if weights.shape != labels.shape or weights.layout != torch.strided:
                return None
            return _by_turns(labels, weights != 0)
        supervised = labels != _IGNORED
        # Labels that were shifted already end one place before the text does.
        if not torch.equal(labels[supervised], ids[supervised]):
            return None
        mask = parts.get("attention_mask")
        if not isinstance(mask, torch.Tensor):
            return _by_widths(ids, supervised, batches, _WIDTHS)
        if mask.shape != ids.shape or not mask.is_cpu:
            return None
        if _says_no_more(ids, mask != 0):
            return _by_widths(ids, supervised, batches, _WIDTHS_OF_A_MASK)
        return _by_mask(ids, supervised, mask != 0)


def _parts(batch: Any) -> dict[str, torch.Tensor]:
    """Of a batch without the usual names, by what the tensors contain; empty: there are
    no such, or several may be meant."""
    found: dict[str, torch.Tensor] = {}
    if isinstance(batch, Mapping):
        entries = list(batch.values())[: _PARTS + 1]
    elif isinstance(batch, (tuple, list)):
        entries = list(batch[: _PARTS + 1])
    else:
        return {}
    if len(entries) > _PARTS:
        return {}
    for entry in entries:
        if type(entry) is not torch.Tensor or not entry.is_cpu or entry.dim() != 2:
            continue
        if not 0 < entry.numel() <= _MOST or entry.layout != torch.strided:
            continue
        if entry.is_floating_point() or entry.is_complex():
            return {}
        name = "input_ids"
        if bool((entry == _IGNORED).any()):
            name = "labels"
        elif bool(((entry == 0) | (entry == 1)).all()):
            name = "attention_mask"
        if name in found:
            return {}
        found[name] = entry
    return found


def _says_no_more(ids: torch.Tensor, attended: torch.Tensor) -> bool:
    """Was the attention mask made of the ids (ids != padding)?"""
    padding = ids[~attended]
    return padding.numel() > 0 and bool(torch.equal(ids != padding[0], attended))


def _text(batch: dict[Any, Any], key: str) -> torch.Tensor | None:
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
    ids: torch.Tensor, supervised: torch.Tensor, batches: _Batches, widths: int
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
    return 1.0 if len(batches.widths) >= widths else None
