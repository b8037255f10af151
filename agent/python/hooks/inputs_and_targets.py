"""Targets that are one of the inputs.

A table whose target column was left among the features, or a window of a series that
ends with the value that is to be predicted: the model copies, and its errors are small
until it meets data of which the target is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

# Name of the scalar of a loader.
NAME = "loader.target_among_inputs"

_BATCHES = 3  # of a loader that are looked at
_LOADERS = 256  # that are looked at
_LEAST = 8  # samples
_DISTINCT = 3  # values of targets
_MOST = 1 << 20  # elements of the inputs


class TargetsAmongInputs:
    def __init__(self) -> None:
        # By the number of a loader: batches so far, and places of the inputs (for a
        # sample) that were equal to the target in all of them.
        self._batches: dict[int, int] = {}
        self._places: dict[int, torch.Tensor] = {}

    def fetched(self, loader: int, batch: Any) -> float | None:
        """1: in some batches the target of each sample is the same one of its inputs;
        None: there is no such pair, or it is not known yet."""
        full = len(self._batches) >= _LOADERS
        count = self._batches.get(loader, _BATCHES if full else 0)
        if count >= _BATCHES:
            return None
        pair = _pair(batch)
        self._batches[loader] = count + 1
        if pair is None:
            self._ends(loader)
            return None
        inputs, targets = pair
        equal = (inputs == targets[:, None]).all(0)
        before = self._places.get(loader)
        if before is not None and before.shape == equal.shape:
            equal = equal & before
        self._places[loader] = equal
        found = bool(equal.any())
        if found and count + 1 < _BATCHES:
            return None
        self._ends(loader)
        return float(found)

    def _ends(self, loader: int) -> None:
        self._batches[loader] = _BATCHES
        self._places.pop(loader, None)


def _pair(batch: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """float[samples, inputs], float[samples] of a batch of two tensors."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        return None
    inputs, targets = batch
    if type(inputs) is not torch.Tensor or type(targets) is not torch.Tensor:
        return None
    if not inputs.is_cpu or not targets.is_cpu or not inputs.is_floating_point():
        return None
    samples = len(inputs) if inputs.dim() > 1 else 0
    if samples < _LEAST or inputs.numel() > _MOST or targets.numel() != samples:
        return None
    if inputs.layout != torch.strided or targets.layout != torch.strided:
        return None
    if targets.is_complex():
        return None
    flat = targets.detach().reshape(-1).to(inputs.dtype)
    rows = inputs.detach().reshape(samples, -1)
    if rows.shape[1] < 2 or len(flat.unique()) < _DISTINCT:
        return None
    return rows, flat
