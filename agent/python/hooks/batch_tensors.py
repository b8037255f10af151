"""Tensors of a batch, as a loader gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_DEPTH = 3
_on_a_device = False  # was a tensor of some batch?


def were_on_a_device() -> bool:
    return _on_a_device


def tensors_of(batch: Any, depth: int = _DEPTH) -> Iterator[torch.Tensor]:
    """Plain ones that are not empty and can be read without waiting, in their order,
    also those in lists, tuples and dictionaries."""
    global _on_a_device
    if type(batch) is torch.Tensor:
        _on_a_device = _on_a_device or not batch.is_cpu
        if batch.is_cpu and batch.layout == torch.strided and batch.numel() > 0:
            yield batch.detach()
    elif depth > 0 and isinstance(batch, (list, tuple, dict)):
        for item in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_of(item, depth - 1)
