"""Ranks that hold the samples of a data set in different orders.

A DistributedSampler shares out positions. Where each rank has shuffled its list of
samples, or has read a folder in its own order, the same sample stands at positions of
several ranks: some samples come twice in a pass, and others not at all.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from typing import TYPE_CHECKING

import torch
from torch.utils.data.distributed import DistributedSampler

from _traincheck import run_agreement
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader
    from traincheck_core import Core

# Name of the scalar of a loader.
NAME = "loader.rows_differ"

_DATA_SETS = 16  # that are compared
_LISTS = 4  # of each
_ATTRIBUTES = 32  # among which they are looked for
_MOST = 1 << 15  # samples
_PARTS = 8  # of a sample that are read
_TEXT = 256  # characters or bytes of each
_PLAIN = (bool, int, float, str, bytes, type(None))


class RankRows:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._compared: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._count = 0

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: another rank has the same samples in another order; None: the ranks do not
        share a data set whose samples can be told apart, or that was said."""
        sampler, data = loader.sampler, loader.dataset
        if not isinstance(sampler, DistributedSampler) or sampler.num_replicas < 2:
            return None
        if not torch.distributed.is_initialized() or self._compared.get(data):
            return None
        if self._count == _DATA_SETS:
            return None
        self._compared.set(data, True)
        self._count += 1
        said = [self._differs(samples) for samples in _lists_of(data)]
        # Another list, of what is drawn for each sample, may well differ.
        return None if not said or None in said else float(all(said))

    def _differs(self, samples: list[bytes]) -> float | None:
        """Only ranks that have the same samples have an order in common."""
        content = _digest(sorted(samples))
        key = f"rows {self._count} {content}"
        what = "the orders in which ranks hold the samples of a data set"
        return run_agreement.differs(self._core, what, key, _digest(samples))


def _digest(samples: list[bytes]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for sample in samples:
        whole.update(len(sample).to_bytes(4, "little"))
        whole.update(sample)
    return whole.hexdigest()


def _lists_of(data: Any) -> list[list[bytes]]:
    """What the data set keeps of its samples, in its order: those of its attributes that
    have as many entries as it has."""
    if not hasattr(type(data), "__len__"):
        return []
    count = len(data)
    if not 1 < count <= _MOST:
        return []
    attributes = list(getattr(data, "__dict__", {}).values())[:_ATTRIBUTES]
    kept = itertools.chain.from_iterable(
        one if type(one) is tuple else (one,) for one in attributes
    )
    found = (_samples_of(one, count) for one in itertools.islice(kept, _ATTRIBUTES))
    return list(itertools.islice((one for one in found if one is not None), _LISTS))


def _samples_of(entries: Any, count: int) -> list[bytes] | None:
    """None: it has another number of entries, some cannot be read, or several are alike:
    their order says little."""
    samples: list[bytes | None]
    is_list = type(entries) is list
    if not (is_list or _is_rows(entries)) or len(entries) != count:
        return None
    if is_list:
        samples = [_content(entry) for entry in entries]
    else:
        few = entries.reshape(count, -1)[:, :_PARTS]
        samples = [repr(row).encode() for row in few.tolist()]
    known = [sample for sample in samples if sample is not None]
    return known if len(set(known)) == count else None


def _is_rows(entries: Any) -> bool:
    """Is it a tensor or an array of NumPy, of numbers or texts, that is not empty?"""
    if type(entries) is torch.Tensor:
        readable = entries.layout == torch.strided and entries.is_cpu
        return bool(readable and entries.dim() > 0 and entries.numel() > 0)
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(entries) is not numpy.ndarray:
        return False
    is_read = entries.dtype.kind in "biufUS"
    return bool(is_read and entries.ndim > 0 and entries.size > 0)


def _content(entry: Any) -> bytes | None:
    """Of its first parts; None: it has none that can be read."""
    parts: list[str] = []
    todo = [entry]
    for _ in range(2 * _PARTS):
        if not todo or len(parts) == _PARTS:
            break
        one = todo.pop()
        if type(one) in _PLAIN:
            text = one[:_TEXT] if isinstance(one, (str, bytes)) else one
            parts.append(repr(text))
        elif type(one) is dict:
            todo += list(itertools.islice(one.values(), _PARTS))[::-1]
        elif type(one) in (list, tuple):
            todo += list(one[:_PARTS])[::-1]
        elif _is_rows(one):
            parts.append(repr(one.reshape(-1)[:_PARTS].tolist()))
    return "\n".join(parts).encode() if parts else None
