"""Steps that rounding takes back.

A bfloat16 has eight bits: a weight of 1 moves by 1/128 or not at all. A training
whose weights have no copy in float32 stands still where its steps are smaller. Such
parameters are compared over the first steps and now and then later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at
from _traincheck.rounding import PARAMETERS, Rounding, is_low, part

if TYPE_CHECKING:
    Sample = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# What optimizers that keep the lost part name it by.
_COMPENSATION = ("comp", "master", "shift", "residual", "kahan", "fp32", "stochastic")


class _Row:
    def __init__(self) -> None:
        self.steps = 0
        self.rounding = Rounding()
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
            moved += int(((part(parameter) != before) & push).sum())
        takes = row.rounding.takes(moved, pushed)
        return None if takes is None else float(takes)


def _samples(optimizer: torch.optim.Optimizer) -> list[Sample]:
    samples: list[Sample] = []
    for group in optimizer.param_groups:
        if not _is_at_full_rate(group):
            continue
        for parameter in group["params"]:
            if len(samples) == PARAMETERS:
                return samples
            gradient = parameter.grad
            if not is_low(parameter) or type(gradient) is not torch.Tensor:
                continue
            if gradient.layout != torch.strided:
                continue
            samples.append((parameter, part(parameter).clone(), part(gradient) != 0))
    return samples


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
