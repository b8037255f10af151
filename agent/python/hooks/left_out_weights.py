"""Weights of losses that train nowhere: a module of its own has them.

Learnt weights of several losses (log variances, a temperature) are often parameters of a
module that takes losses and gives their sum. `model.parameters()` does not have them, and
an optimizer that was given no more leaves them as they were. They get gradients that
nobody clears, at each step. Who moves them by hand changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.parts import modules_of
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Model, Models

_USES = 8  # steps in a row, after each of which they are as they were
_MOST = 64  # looks
_MOST_LOOKUPS = 1024  # of modules, while none is new and none of them matters
_MODELS = 16
_PARTS = 16  # of such a module
_ELEMENTS = 64  # of all its parameters, which are numbers or rows


class _Uses:
    """Of one module that gives a loss."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.given = False  # since the last step
        self.over = not _has_numbers_alone(model)
        self.gradients: list[TensorMark] = []
        self.values: list[torch.Tensor] = []
        self.steps = 0  # after which the values were the same

    def take(self, values: list[torch.Tensor]) -> None:
        if not self.values:
            self.values = [value.clone() for value in values]
        elif all(map(torch.equal, self.values, values)):
            self.steps += 1
        else:
            self.over = True  # somebody moves them


class LeftOutWeights:
    def __init__(self, models: Models, values: DeviceValues) -> None:
        self._models = models
        self._values = values
        self._uses: dict[int, _Uses] = {}  # by the model's number
        self._given = False  # has one of them given a loss since the last step?
        self._looks = 0
        self._lookups = 0
        self._generation = -1  # of the models, at the last forward

    def forward_ended(self, module: torch.nn.Module, result: Any) -> None:
        """Called with what an outermost forward has given."""
        if self._looks == _MOST or type(result) is not torch.Tensor:
            return
        if result.dim() > 0 or not result.requires_grad:
            return
        # A new module is a model by the end of its first outermost forward.
        if self._generation != self._models.generation:
            self._generation, self._lookups = self._models.generation, 0
        if self._lookups == _MOST_LOOKUPS:
            return
        self._lookups += 1
        model = self._models.find(module)
        if model is None:
            return
        uses = self._uses.get(model.number)
        if uses is None:
            if len(self._uses) == _MODELS:
                return
            uses = self._uses[model.number] = _Uses(model)
        uses.given = not uses.over
        self._given = self._given or uses.given

    def looks(self) -> bool:
        return self._given

    def step_begins(self, held: set[int], loaded: set[int]) -> None:
        """held: ids of what optimizers hold; loaded: of what was given values of a
        state, which may stay as it is."""
        self._given = False
        self._looks += 1
        self._lookups = 0
        for uses in self._uses.values():
            if uses.given:
                uses.given = False
                parameters = _parameters_of(uses.model)
                ids = set(map(id, parameters))
                # What was held once is known, too: it may be frozen later.
                uses.over = not (ids.isdisjoint(held) and ids.isdisjoint(loaded))
                if not uses.over:
                    self._look(uses, parameters)

    def is_found(self) -> float | None:
        """1: no optimizer holds what one of them has, and it stays as it was; None: there
        is none of which that is known."""
        found = any(one.steps >= _USES and not one.over for one in self._uses.values())
        return 1.0 if found else None

    def _look(self, uses: _Uses, parameters: list[torch.Tensor]) -> None:
        found = [one.grad for one in parameters]
        gradients = [one for one in found if one is not None and has_mark(one)]
        before, uses.gradients = uses.gradients, list(map(TensorMark, gradients))
        is_kept = len(gradients) == len(parameters) == len(before)
        if not is_kept or not all(m.is_of(g) for m, g in zip(before, gradients)):
            uses.values, uses.steps = [], 0
        if len(gradients) == len(parameters) and all(map(self._reads, parameters)):
            self._values.read([first_of(p, _ELEMENTS) for p in parameters], uses.take)

    def _reads(self, parameter: torch.Tensor) -> bool:
        return has_mark(parameter) and self._values.reads(parameter)


def _parameters_of(model: Model) -> list[torch.Tensor]:
    return [
        parameter
        for module in modules_of(model.own)
        for parameter in module._parameters.values()
        if parameter is not None and parameter.requires_grad
    ]


def _has_numbers_alone(model: Model) -> bool:
    """Of its parameters; it holds no other model either."""
    if len(model.own) > _PARTS or len(model.parts) > len(model.own):
        return False
    parameters = _parameters_of(model)
    if not parameters or any(one.dim() > 1 for one in parameters):
        return False
    return bool(sum(one.numel() for one in parameters) <= _ELEMENTS)
