"""Inputs of an evaluation that are on another scale than those of the training.

What is divided by 255, or normalised, on one side only is off by a factor of a
hundred; the evaluation is then about inputs that the model was never shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.batch_tensors import tensors_of

if TYPE_CHECKING:
    from typing import Any

_FACTOR = 64.0
_LEAST = 64  # elements
_MOST = 65536

# (sizes of a sample, root of the mean square)
Scale = tuple[tuple[int, ...], float]

# Name of the scalar.
NAME = "loader.scaled_apart"


class InputScales:
    def __init__(self) -> None:
        self._latest: Scale | None = None  # of a first batch, while gradients are on
        self._trained: Scale | None = None  # of the last one that was trained with

    def first_batch(self, batch: Any) -> float | None:
        """Of each loader. 1: it is an evaluation's and of another scale."""
        scales = map(_scale, tensors_of(batch))
        scale = next((scale for scale in scales if scale is not None), None)
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


def _scale(tensor: torch.Tensor) -> Scale | None:
    """None: it says nothing of a scale."""
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.numel() < _LEAST:
        return None
    few = tensor.reshape(-1)[:_MOST].float()
    size = float(few.square().mean().sqrt())
    return (tuple(tensor.shape[1:]), size) if 0 < size < math.inf else None
