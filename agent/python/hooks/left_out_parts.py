"""Parts of a model that train nowhere: no optimizer was given them.

Groups of parameters are often made by hand, by names or by parts, and one is forgotten:
a head that is not among them keeps its first random values, while what lies below it is
trained. Who trains a head alone leaves most of the model out; what was loaded may stay
as it is. A model that is left out as a whole may be frozen on purpose, too. Where an
optimizer was given another one twice, its name stands where that of the first one was
meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.module_content import named_parameters_in
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
            named = named_parameters_in(module)
            self.loaded.update(id(one) for name, one in named if name in state)

    def looks(self) -> bool:
        return self._steps < _STEPS and self._looks < _MOST

    def step_begins(self, held: set[int], doubled: set[int]) -> None:
        """held: ids of what optimizers hold; doubled: of what one of them holds twice."""
        self._steps += 1
        self._looks += 1
        left: set[int] = set()
        trained_in = [(model, _trained_in(model)) for model in self._models.all()]
        is_doubled = any(
            len(trained) > 1 and trained <= doubled for _, trained in trained_in
        )
        for model, trained in trained_in:
            others = trained - held
            is_missing = is_doubled and others == trained and not model.is_copy()
            if len(others) < len(trained & held) or (others and is_missing):
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
        them, although it holds most of their model, or another one twice; None: of no
        model."""
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
