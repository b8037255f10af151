"""Steps that rounding takes back.

A bfloat16 has eight bits: a weight of 1 moves by 1/128 or not at all. A training
whose weights have no copy in float32 stands still where its steps are smaller: all of it,
or its scales alone, which begin at 1. Such parameters are compared over the first steps
and now and then later, at rates that do not rise: a warm-up begins with steps that may
well be lost.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.own_code import codes_of
from _traincheck.rounding import PARAMETERS, Rounding, is_low, part

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

# Of the scalars: of most elements, and of all of some parameter.
NAME = "opt.rounded_away"
ALL_OF_ONE = "opt.parameter_rounded_away"
# What optimizers that keep the lost part name it by.
_COMPENSATION = ("comp", "master", "shift", "residual", "kahan", "fp32", "stochastic")
_LEAST = 16  # elements of a parameter that were pushed
_HABIT = 2  # looks
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
        self.one_said: float | None = None
        self.standing: list[int] = []  # looks in a row at which one did not move
        # Of each group: the last rate and the largest one so far.
        self.rates: list[tuple[float, float]] = []


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
        groups = _at_full_rates(row, optimizer)
        if not looks:
            return
        parameters, gradients = self._samples(groups)
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

    def one_ended(self, optimizer: torch.optim.Optimizer) -> float | None:
        """Called after ended(). 1: no element of some parameter moved at a look and the
        last one; None: no look that is not known yet."""
        row = self._rows.get(optimizer)
        if row is None:
            return None
        said, row.one_said = row.one_said, None
        return said

    def _samples(
        self, groups: list[dict[str, Any]]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Parameters and their gradients."""
        parameters: list[torch.Tensor] = []
        gradients: list[torch.Tensor] = []
        vectors = 0
        for group in groups:
            for parameter in group["params"]:
                # Of scales, which lie between the others, as many again.
                is_vector = parameter.dim() == 1
                if (vectors if is_vector else len(parameters) - vectors) == PARAMETERS:
                    continue
                gradient = parameter.grad
                if not is_low(parameter) or type(gradient) is not torch.Tensor:
                    continue
                if self._values.reads(parameter) and self._values.reads(gradient):
                    parameters.append(parameter)
                    gradients.append(gradient)
                    vectors += is_vector
        return parameters, gradients


def _compare(row: _Row, look: _Look, after: list[torch.Tensor]) -> None:
    pushed = moved = 0
    if len(row.standing) != len(after):
        row.standing = [0] * len(after)
    for number, (now, before, push) in enumerate(zip(after, look.before, look.pushed)):
        of_it = int(push.sum())
        changed = int(((now != before) & push).sum())
        pushed += of_it
        moved += changed
        stands = of_it >= _LEAST and changed == 0
        row.standing[number] = row.standing[number] + 1 if stands else 0
    if pushed:
        row.one_said = float(max(row.standing) >= _HABIT)
    takes = row.rounding.takes(moved, pushed)
    if takes is not None:
        row.said = float(takes)


def _at_full_rates(row: _Row, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Its groups that are past their warm-up. A schedule says what their rate is to be;
    without one it is the largest so far, once it has ceased to rise."""
    found = []
    rates: list[tuple[float, float]] = []
    for place, group in enumerate(optimizer.param_groups):
        rate, initial = group.get("lr"), group.get("initial_lr")
        if not isinstance(rate, float):
            rate = 0.0
        last, largest = row.rates[place] if place < len(row.rates) else (rate, rate)
        rates.append((rate, max(rate, largest)))
        if isinstance(initial, float):
            is_full = rate >= initial / 2
        else:
            is_full = last >= rate >= largest / 2
        if rate > 0 and is_full:
            found.append(group)
    row.rates = rates
    return found


def _compensates(optimizer: torch.optim.Optimizer) -> bool:
    """Does it keep what rounding takes, or draw which way to round?"""
    entry = next(iter(optimizer.state.values()), None)
    names = list(entry) if isinstance(entry, dict) else []
    names += vars(optimizer)
    keeps = any(word in str(name) for name in names for word in _COMPENSATION)
    return keeps or _draws(type(optimizer))


def _draws(optimizer_class: type[torch.optim.Optimizer]) -> bool:
    called = [name for code in codes_of(optimizer_class) for name in code.co_names]
    return any(word in name.lower() for name in called for word in _DRAWS)
