"""Layers whose gradients are zero in each of an optimizer's first steps.

What they compute reaches the loss, but nothing of the loss comes back: all units of a
ReLU are dead, a mask or a factor is 0, a function has no slope. What begins behind
zeros (adapters, gates, zero convolutions) gets its gradients from the second step on.
Looked at are those in this process's memory: no computation is put on a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

# Name of the scalar.
NAME = "opt.layer_gets_zeros"

_STEPS = 6  # in which weights could move
_PARAMETERS = 256


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.zero: set[int] | None = None  # ids of matrices, since the first step
        self.others = False  # has another one had a gradient?
        self.said: float | None = None

    def looks_again(self) -> bool:
        return self.steps < _STEPS

    def look(self, gradients: dict[int, torch.Tensor]) -> None:
        """Of one step, by the ids of their matrices."""
        zero = {one for one, gradient in gradients.items() if not gradient.any()}
        self.others = self.others or len(zero) < len(gradients)
        self.zero = zero if self.zero is None else self.zero & zero
        if self.steps == _STEPS and self.others:
            self.said = float(bool(self.zero))

    def ends(self) -> None:
        """Each matrix has had a gradient, or has none any more."""
        self.steps = _STEPS
        self.said = 0.0 if self.others else None


class ZeroGradients:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: a matrix has had gradients of zeros alone in its first steps; None: no
        answer that is not known yet."""
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        if row.steps < _STEPS and _moves(optimizer):
            row.steps += 1
            gradients = dict(self._gradients(optimizer, row.zero))
            if gradients:
                row.look(gradients)
            elif row.steps > 1:
                row.ends()
        said, row.said = row.said, None
        if said is None and not any(map(_Row.looks_again, self._rows.values())):
            self._awake.discard(NAME)
        return said

    def _gradients(
        self, optimizer: torch.optim.Optimizer, among: set[int] | None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """By the id of their matrix; among: the matrices that are asked for, or all."""
        count = 0
        for parameter in parameters_of(optimizer):
            if among is not None and id(parameter) not in among:
                continue
            if type(parameter) is not torch.nn.Parameter or parameter.dim() < 2:
                continue
            gradient = parameter.grad
            if type(gradient) is not torch.Tensor or not self._values.is_here(gradient):
                continue
            if gradient.layout != torch.strided:
                continue
            yield id(parameter), gradient.detach()
            count += 1
            if count == _PARAMETERS:
                return


def _moves(optimizer: torch.optim.Optimizer) -> bool:
    """Has no group a learning rate of 0? In a warm-up from 0 nothing moves."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    return not any(type(rate) in (int, float) and rate == 0 for rate in rates)
