"""Steps that rounding takes back.

A bfloat16 has eight bits: a weight of 1 moves by 1/128 or not at all. A training
whose weights have no copy in float32 stands still where its steps are smaller. A few
elements of such parameters are compared over the first steps and now and then later;
on a device that would wait for it, and is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at

if TYPE_CHECKING:
    Sample = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_PARAMETERS = 8
_ELEMENTS = 256  # of each
_LEAST = 0.5  # of the elements that move
_HABIT = 2  # looks
_LOW = (torch.bfloat16, torch.float16)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# What optimizers that keep the lost part name it by.
_COMPENSATION = ("comp", "master", "shift", "residual", "kahan", "fp32", "stochastic")


class _Row:
    def __init__(self) -> None:
        self.steps = 0
        self.habit = 0
        self.samples: list[Sample] = []


class RoundedSteps:
    def __init__(self) -> None:
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        row.samples = []
        if looks_at(number):
            row.samples = _samples(optimizer)

    def ended(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: at this look and the last one hardly anything moved; None: no look."""
        row = self._rows.get(optimizer)
        if row is None or not row.samples:
            return None
        samples, row.samples = row.samples, []
        if _compensates(optimizer):
            return None
        pushed = moved = 0
        for parameter, before, push in samples:
            pushed += int(push.sum())
            moved += int(((_part(parameter) != before) & push).sum())
        if pushed < _ELEMENTS // 4:
            return None
        row.habit = row.habit + 1 if moved < _LEAST * pushed else 0
        return float(row.habit >= _HABIT)


def _samples(optimizer: torch.optim.Optimizer) -> list[Sample]:
    samples: list[Sample] = []
    for group in optimizer.param_groups:
        if not _is_at_full_rate(group):
            continue
        for parameter in group["params"]:
            if len(samples) == _PARAMETERS:
                return samples
            gradient = parameter.grad
            if type(parameter) not in _PLAIN or type(gradient) is not torch.Tensor:
                continue
            if parameter.dtype not in _LOW or not parameter.is_cpu:
                continue
            if gradient.layout != torch.strided:
                continue
            samples.append((parameter, _part(parameter).clone(), _part(gradient) != 0))
    return samples


def _part(tensor: torch.Tensor) -> torch.Tensor:
    """Some of its elements, without a gradient."""
    return tensor.detach().reshape(-1)[:_ELEMENTS]


def _is_at_full_rate(group: dict[str, object]) -> bool:
    """A warm-up begins with steps that may well be lost."""
    rate, initial = group.get("lr"), group.get("initial_lr")
    if not isinstance(rate, float) or rate <= 0:
        return False
    return not isinstance(initial, float) or rate >= initial / 2


def _compensates(optimizer: torch.optim.Optimizer) -> bool:
    """Does it keep what rounding takes, or draw which way to round?"""
    entry = next(iter(optimizer.state.values()), None)
    names = list(entry) if isinstance(entry, dict) else []
    names += vars(optimizer)
    return any(word in str(name) for name in names for word in _COMPENSATION)
