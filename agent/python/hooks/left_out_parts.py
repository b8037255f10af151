"""Parts of a model that train nowhere: no optimizer was given them.

Groups of parameters are often made by hand, by names or by parts, and one is forgotten:
a head that is not among them keeps its first random values, while what lies below it is
trained. Who trains a head alone leaves most of the model out; what was loaded may stay
as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.parts import modules_of

if TYPE_CHECKING:
    from typing import Any

    import torch

    from _traincheck.models import Model, Models

NAME = ("opt.part_left_out", 0)

_STEPS = 2  # the first ones of all optimizers since one was made
_MOST = 64  # looks


class LeftOutParts:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._steps = 0
        self._looks = 0
        self._left: set[int] | None = None  # since the first of them
        # What was loaded, or was held by an optimizer once, may stay as it is: by id, and
        # by the model's number, too, as ids are used again.
        self.loaded: set[int] = set()
        self._held_once: set[tuple[int, int]] = set()
        self._said: float | None = None

    def optimizer_made(self) -> None:
        self._steps, self._left = 0, None

    def loads(self, module: torch.nn.Module, state: Any) -> None:
        """Called when a module has taken over a state."""
        if isinstance(state, dict):
            named = module.named_parameters()
            self.loaded.update(id(one) for name, one in named if name in state)

    def looks(self) -> bool:
        return self._steps < _STEPS and self._looks < _MOST

    def step_begins(self, held: set[int]) -> None:
        """held: ids of what optimizers hold."""
        self._steps += 1
        self._looks += 1
        left: set[int] = set()
        for model in self._models.all():
            trained = _trained_in(model)
            others = trained - held
            if len(others) < len(trained & held):
                left.update(
                    one
                    for one in others - self.loaded
                    if (model.number, one) not in self._held_once
                )
                self._said = self._said or 0.0
            self._held_once.update((model.number, one) for one in trained & held)
        if self._left is not None:
            left &= self._left
            if left:
                self._said = 1.0
        self._left = left

    def is_found(self) -> float | None:
        """1: parameters had a gradient at the first two steps, and no optimizer holds
        them, although it holds most of their model; None: of no model."""
        return self._said


def _trained_in(model: Model) -> set[int]:
    return {
        id(parameter)
        for module in modules_of(model.own)
        for parameter in module._parameters.values()
        if parameter is not None
        and parameter.requires_grad
        and parameter.grad is not None
    }
