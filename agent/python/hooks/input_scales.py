"""Inputs of an evaluation that are on another scale than those of the training.

What is divided by 255, or normalised, on one side only is off by a factor of a
hundred; the evaluation is then about inputs that the model was never shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_FACTOR = 64.0
_LEAST = 64  # elements
_MOST = 65536
_DEPTH = 2

# (sizes of a sample, root of the mean square)
Scale = tuple[tuple[int, ...], float]

# Name of the scalar.
NAME = "loader.scaled_apart"


class InputScales:
    def __init__(self) -> None:
        self._seen: set[int] = set()  # numbers of loaders
        self._latest: Scale | None = None  # of a first batch, while gradients are on
        self._trained: Scale | None = None  # of the last one that was trained with

    def fetched(self, loader: int, batch: Any) -> float | None:
        """Called for every batch. 1: it is an evaluation's and of another scale."""
        if loader in self._seen:
            return None
        self._seen.add(loader)
        scale = next(_scales(batch, _DEPTH), None)
        if scale is None:
            return None
        if torch.is_grad_enabled():
            self._latest = scale
            return None
        trained = self._trained
        if trained is None or trained[0] != scale[0]:
            return None
        factor = scale[1] / trained[1]
        return float(factor >= _FACTOR or factor <= 1 / _FACTOR)

    def backward_begins(self) -> None:
        if self._latest is not None:
            self._trained, self._latest = self._latest, None


def _scales(value: Any, depth: int) -> Iterator[Scale]:
    if type(value) is torch.Tensor:
        if not value.is_cpu or not value.is_floating_point() or value.dim() < 2:
            return
        few = value.detach().reshape(-1)[:_MOST].float()
        size = float(few.square().mean().sqrt()) if len(few) >= _LEAST else 0.0
        if size > 0 and math.isfinite(size):
            yield tuple(value.shape[1:]), size
    elif depth > 0 and isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _scales(item, depth - 1)
