"""Inputs of an evaluation that are on another scale than those of the training.

What is divided by 255, or normalised, on one side only is off by a factor of a
hundred; the evaluation is then about inputs that the model was never shown.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import torch

from _traincheck.batch_tensors import tensors_of

if TYPE_CHECKING:
    from typing import Any

_FACTOR = 64.0
_OF_PICTURES = (215.0, 300.0)  # that are divided by 255 on one side
_LEAST = 64  # elements
_MOST = 65536
_OF_A_CHANNEL = 128  # elements at least
# Of each channel that is standardised, and of none that is not.
_STANDARD = (0.75, 1.33)
_NO_STANDARD = (0.67, 1.5)
_OFF = 0.3  # of a mean

# Names of the scalars.
NAME = "loader.scaled_apart"
NOT_STANDARDISED = "loader.not_standardised"


@dataclasses.dataclass(frozen=True)
class _Scale:
    sizes: tuple[int, ...]  # of a sample
    size: float  # root of the mean square
    # Has each channel mean 0 and deviation 1? None: a few have.
    standardised: bool | None


class InputScales:
    def __init__(self) -> None:
        self._latest: _Scale | None = None  # of a first batch, while gradients are on
        self._trained: _Scale | None = None  # of the last one that was trained with
        # Sizes of a sample of an evaluation that has the training's scale.
        self._matched: tuple[int, ...] | None = None

    def first_batch(self, batch: Any) -> dict[str, float]:
        """Of each loader. 1: it is an evaluation's and of another scale."""
        scales = map(_scale, tensors_of(batch))
        scale = next((scale for scale in scales if scale is not None), None)
        if scale is None:
            return {}
        if torch.is_grad_enabled():
            self._latest = scale
            return {}
        trained = self._trained
        if trained is None or trained.sizes != scale.sizes:
            return {}
        found = {NAME: float(self._is_apart(scale.size / trained.size, scale.sizes))}
        known = (trained.standardised, scale.standardised)
        if None not in known and any(known):
            found[NOT_STANDARDISED] = float(not all(known))
        return found

    def _is_apart(self, factor: float, sizes: tuple[int, ...]) -> bool:
        """Where another evaluation has the training's scale, only a division by 255 is
        known to be missing: others may ask what a model makes of larger inputs."""
        most = max(factor, 1 / factor)
        if most < _FACTOR:
            self._matched = sizes
        if self._matched == sizes:
            low, high = _OF_PICTURES
            return low <= most <= high
        return most >= _FACTOR

    def backward_begins(self) -> None:
        if self._latest is not None:
            self._trained, self._latest = self._latest, None


def _scale(tensor: torch.Tensor) -> _Scale | None:
    """None: it says nothing of a scale."""
    if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.numel() < _LEAST:
        return None
    few = tensor[: max(1, _MOST * len(tensor) // tensor.numel())].float()
    size = float(few.square().mean().sqrt())
    if not 0 < size < math.inf:
        return None
    return _Scale(tuple(tensor.shape[1:]), size, _is_standardised(few))


def _is_standardised(batch: torch.Tensor) -> bool | None:
    """None: some channels are and some are not, or they are too small to say."""
    channels = batch.transpose(0, 1).flatten(1)
    if channels.shape[1] < _OF_A_CHANNEL:
        return None
    means, sizes = channels.mean(1).abs(), channels.std(1)
    low, high = _STANDARD
    if bool((means < _OFF).all() & (sizes > low).all() & (sizes < high).all()):
        return True
    low, high = _NO_STANDARD
    apart = ((sizes < low) | (sizes > high)).all() & (means > _OFF).any()
    return False if bool(apart) else None
