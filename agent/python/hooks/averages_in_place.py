"""Averages that are the trained model itself, and no copy of it.

    self.average = model                      # copy.deepcopy(model) was meant
    ...
    a.copy_(decay * a + (1 - decay) * p)      # of one tensor: it stays what it is

An update then writes to the parameters that are trained, and changes none of them. A
trainer that has averages among others may step in such a method: a small rate changes
little, too, so that calls in which an optimizer steps say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.device_values import DeviceValues
    from _traincheck.holds import Holds

# Name of the scalar.
NAME = "opt.average_is_model"

_LOOKS = 3  # at updates of one object
_AGREE = 2  # of them
_ELEMENTS = 64
_FEWEST = 8  # elements of a parameter that is looked at
_ROUNDED = 1e-4  # of its largest element, by which an update may move it


class _Row:
    """One object that keeps averages."""

    def __init__(self) -> None:
        self.looks = 0
        self.alike = 0  # looks at which an update wrote what was there
        # Before the update that runs.
        self.steps = 0
        self.version = 0
        self.before: torch.Tensor | None = None


class AveragesInPlace:
    def __init__(self, holds: Holds, values: DeviceValues) -> None:
        self._holds = holds
        self._values = values
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._steps = 0  # of all optimizers
        self._said: float | None = None

    def update_begins(self, keeper: Any) -> None:
        row = self._rows.get(keeper)
        if row is None:
            row = _Row()
            self._rows.set(keeper, row)
        row.before = None
        if row.looks < _LOOKS:
            row.looks += 1
            row.steps = self._steps
            parameter = self._trained_of(keeper)
            if parameter is not None:
                row.version = parameter._version
                row.before = parameter.detach().flatten()[:_ELEMENTS].clone()

    def updated(self, keeper: Any) -> None:
        row = self._rows.get(keeper)
        if row is None or row.before is None:
            return
        before, row.before = row.before, None
        parameter = self._trained_of(keeper)
        if parameter is None or row.steps != self._steps:
            return
        now = parameter.detach().flatten()[:_ELEMENTS]
        most = _ROUNDED * float(before.abs().max())
        row.alike += (
            parameter._version != row.version
            and now.shape == before.shape
            and float((now - before).abs().max()) <= most
        )
        self._said = float(bool(self._said) or row.alike >= _AGREE)

    def optimizer_steps(self) -> float | None:
        """Called as a step begins. 1: an average is the trained model itself; None: no object that keeps
        averages has a trained model."""
        self._steps += 1
        return self._said

    def _trained_of(self, keeper: Any) -> torch.nn.Parameter | None:
        """The first parameter, large enough, of a module that the object has and an
        optimizer trains. None, too, if it has another one of that class, which is not
        trained: that is the copy, and what is done to the model is meant."""
        held = self._holds.held_tensors()
        modules = list(_modules_of(keeper))
        copies = {type(m) for m in modules if not _any_is_in(m, held)}
        if len(copies) < len(modules):
            self._said = self._said or 0.0  # it has a trained one, too
        for module in modules:
            if type(module) in copies:
                continue
            for parameter in parameters_in(module):
                if parameter.numel() >= _FEWEST and id(parameter) in held:
                    is_known = type(parameter) is torch.nn.Parameter
                    return parameter if is_known and self._is_here(parameter) else None
        return None

    def _is_here(self, parameter: torch.nn.Parameter) -> bool:
        return parameter.is_floating_point() and self._values.is_here(parameter)


def _any_is_in(module: torch.nn.Module, held: set[int]) -> bool:
    return any(id(parameter) in held for parameter in parameters_in(module))


def _modules_of(keeper: Any) -> Iterator[torch.nn.Module]:
    own = getattr(keeper, "__dict__", {})
    for value in (*own.values(), *own.get("_modules", {}).values()):
        # isinstance() would run properties of the user's objects.
        if issubclass(type(value), torch.nn.Module):
            yield value
