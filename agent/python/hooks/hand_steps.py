"""Steps that a program makes itself, on gradients that it never clears.

    loss.backward()
    with torch.no_grad():
        for weight in model.parameters():
            weight -= rate * weight.grad

torch adds each gradient to the one that is there: such a step goes by the sum of all
gradients so far. Looked at is one number of each parameter, that with the largest
gradient: it changes from one backward to the next although its gradient stays. Who adds
up the gradients of several backwards on purpose clears them after the step. Only of
programs without an optimizer of torch, and of what is in this process's memory.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple
from typing import TYPE_CHECKING

from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Models

NAME = "loss.hand_steps_add_up"  # of the scalar

_FIRST = 16  # backwards after which gradients are looked at
_EVERY = 64  # afterwards one of so many
_STEPS = 2  # on gradients that stay, before it is said
_PARAMETERS = 32  # that are looked at
_ELEMENTS = 1 << 20  # of one of them


class _Number(NamedTuple):
    """One of a parameter, as a backward left it."""

    variable: int
    gradient: TensorMark
    place: int
    value: float
    slope: float  # its gradient

    def is_in(self, parameter: torch.Tensor) -> bool:
        """Its data may have been replaced since."""
        return bool(parameter.is_contiguous()) and self.place < parameter.numel()

    def moved(self, parameter: torch.Tensor) -> bool:
        return _at(parameter, self.place) != self.value

    def stays(self, parameter: torch.Tensor) -> bool:
        """Is its gradient what the backward left?"""
        gradient = parameter.grad
        if gradient is None or not self.gradient.is_of(gradient):
            return False
        return _at(gradient, self.place) == self.slope


class HandSteps:
    def __init__(self, models: Models, values: DeviceValues) -> None:
        self._models = models
        self._values = values
        self._backwards = 0
        self._seen: list[_Number] = []
        self._steps = 0  # on gradients that stayed
        self._clears = False

    def backward_begins(self) -> float | None:
        """1: the program has made steps, and no gradient was cleared after one; 0:
        gradients are cleared; None: not known."""
        seen, self._seen = self._seen, []
        tensors = (
            {one: parameter for one, parameter in self._parameters()} if seen else {}
        )
        known = [(one, tensors.get(one.variable)) for one in seen]
        there = [
            (one, parameter)
            for one, parameter in known
            if parameter is not None and one.is_in(parameter)
        ]
        if not there or len(there) < len(known):
            return None  # another model
        if not any(one.moved(parameter) for one, parameter in there):
            return None  # a micro-batch
        stays = [one.stays(parameter) for one, parameter in there]
        self._steps += all(stays)
        self._clears = self._clears or not all(stays)
        if self._clears:
            return 0.0
        return 1.0 if self._steps >= _STEPS else None

    def backward_ended(self) -> None:
        """Called after every outermost one of a program without optimizers."""
        number, self._backwards = self._backwards, self._backwards + 1
        if number < _FIRST or number % _EVERY == 0:
            trained = filter(self._is_readable, self._parameters())
            some = itertools.islice(trained, _PARAMETERS)
            self._seen = [one for one in map(_largest, some) if one.slope != 0]

    def _parameters(self) -> Iterator[tuple[int, torch.Tensor]]:
        for model in self._models.all():
            for _, variable, parameter in model.params():
                yield variable, parameter

    def _is_readable(self, known: tuple[int, torch.Tensor]) -> bool:
        """Has it a gradient in this process's memory?"""
        parameter = known[1]
        if not has_mark(parameter) or not self._values.is_here(parameter):
            return False
        gradient = parameter.grad
        if gradient is None or not has_mark(gradient):
            return False
        if not parameter.is_floating_point():
            return False
        if not (parameter.is_contiguous() and gradient.is_contiguous()):
            return False
        return bool(0 < gradient.numel() <= _ELEMENTS)


def _largest(known: tuple[int, torch.Tensor]) -> _Number:
    variable, parameter = known
    gradient = parameter.grad
    assert gradient is not None
    place = int(gradient.detach().abs().argmax())
    value, slope = _at(parameter, place), _at(gradient, place)
    return _Number(variable, TensorMark(gradient), place, value, slope)


def _at(tensor: torch.Tensor, place: int) -> float:
    return float(tensor.detach().view(-1)[place])
