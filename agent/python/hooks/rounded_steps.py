"""Steps that rounding takes back.

A bfloat16 has eight bits: a weight of 1 moves by 1/128 or not at all. A training
whose weights have no copy in float32 stands still where its steps are smaller. Such
parameters are compared over the first steps and now and then later.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.rounding import PARAMETERS, Rounding, is_low, part

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

NAME = "opt.rounded_away"  # of the scalar
# What optimizers that keep the lost part name it by.
_COMPENSATION = ("comp", "master", "shift", "residual", "kahan", "fp32", "stochastic")
_WRAPPERS = 8  # around each other
_DRAWS = ("stochastic", "rand")  # in names that its own code calls


class _Look:
    """One step: its parameters, and what they and their gradients were before."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.parameters = parameters
        self.before: list[torch.Tensor] = []
        self.pushed: list[torch.Tensor] = []

    def begins(self, values: list[torch.Tensor]) -> None:
        count = len(self.parameters)
        self.before = [value.clone() for value in values[:count]]
        self.pushed = [gradient != 0 for gradient in values[count:]]


class _Row:
    def __init__(self) -> None:
        self.rounding = Rounding()
        self.look: _Look | None = None
        self.said: float | None = None


class RoundedSteps:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def begins(self, optimizer: torch.optim.Optimizer, looks: bool) -> None:
        """Called at steps that are to be looked at, and once it is awake at all."""
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        row.look = None
        if not looks:
            return
        parameters, gradients = self._samples(optimizer)
        if parameters:
            self._awake.add(NAME)
            row.look = _Look(parameters)
            self._values.read(list(map(part, parameters + gradients)), row.look.begins)

    def ended(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: at a look and the last one hardly anything moved; None: no look that is
        not known yet."""
        row = self._rows.get(optimizer)
        if row is None:
            return None
        look, row.look = row.look, None
        if look is not None and not _compensates(optimizer):
            parameters, look.parameters = (
                look.parameters,
                [],
            )  # their memory is not kept
            compare = functools.partial(_compare, row, look)
            self._values.read(list(map(part, parameters)), compare)
        said, row.said = row.said, None
        return said

    def _samples(
        self, optimizer: torch.optim.Optimizer
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Parameters and their gradients."""
        parameters: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        for group in optimizer.param_groups:
            if not _is_at_full_rate(group):
                continue
            for parameter in group["params"]:
                if len(parameters) == PARAMETERS:
                    return parameters, gradients
                gradient = parameter.grad
                if not is_low(parameter) or type(gradient) is not torch.Tensor:
                    continue
                if self._values.reads(parameter) and self._values.reads(gradient):
                    parameters.append(parameter)
                    gradients.append(gradient)
        return parameters, gradients


def _compare(row: _Row, look: _Look, after: list[torch.Tensor]) -> None:
    pushed = moved = 0
    for now, before, push in zip(after, look.before, look.pushed):
        pushed += int(push.sum())
        moved += int(((now != before) & push).sum())
    takes = row.rounding.takes(moved, pushed)
    if takes is not None:
        row.said = float(takes)


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
    keeps = any(word in str(name) for name in names for word in _COMPENSATION)
    return keeps or _draws(type(optimizer))


def _draws(optimizer_class: type[torch.optim.Optimizer]) -> bool:
    own: list[type[Any]] = [
        one for one in optimizer_class.__mro__ if not _is_of_torch(one)
    ]
    values = [value for one in own for value in vars(one).values()]
    codes = [getattr(_unwrapped(value), "__code__", None) for value in values]
    called = [
        name
        for code in codes
        if isinstance(code, types.CodeType)
        for name in code.co_names
    ]
    return any(word in name.lower() for name in called for word in _DRAWS)


def _unwrapped(value: Any) -> Any:
    """The function behind wrappers of ours and of torch."""
    for _ in range(_WRAPPERS):
        inner = getattr(value, "__wrapped__", None)
        if not callable(inner):
            break
        value = inner
    return value


def _is_of_torch(one: type[Any]) -> bool:
    return one is object or one.__module__.split(".")[0] == "torch"
