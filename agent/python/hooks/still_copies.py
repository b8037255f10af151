"""Copies that are evaluated in place of the model, and that nobody updates.

An average whose update is never called, or a copy that was made before the training,
gives the same results in each evaluation. A teacher stands still, too, and is called in
the training's own steps.
"""

from __future__ import annotations

import weakref
from itertools import islice
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Model

# Name of the scalar.
NAME = "opt.evaluates_still_copy"

_PASSES = 3  # over evaluated data, before it is judged
_PARAMETERS, _ELEMENTS = 8, 16  # that are compared


class _Copy:
    def __init__(self) -> None:
        self.is_done = False
        self.passes = 0
        self.at = -1  # trainings before the last of them
        self.elements: int | None = None  # hash of some
        self.moved = False

    def take(self, values: list[torch.Tensor]) -> None:
        elements = hash(tuple(tuple(value.tolist()) for value in values))
        self.moved |= self.elements is not None and self.elements != elements
        self.elements = elements


class StillCopies:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._copies: WeakIdentityMap[torch.nn.Module, _Copy] = WeakIdentityMap()
        self._is_evaluation = False  # no backward since a pass over data began
        self._trainings = 0  # passes with a backward
        self._said: bool | None = None

    def pass_begins(self) -> None:
        self._is_evaluation = True

    def backward_begins(self) -> None:
        self._is_evaluation = False
        self._trainings += 1

    def evaluates(self, model: Model) -> None:
        """Called before an outermost forward without gradients."""
        root = model.root()
        if root is None or not model.shadow_of or root.training:
            return
        copy = self._copies.get(root) or _Copy()
        self._copies.set(root, copy)
        if not self._is_evaluation:
            copy.is_done = True
        if copy.is_done or self._trainings == copy.at:
            return
        few = [first_of(p, _ELEMENTS) for p in islice(self._read(root), _PARAMETERS)]
        copy.at = self._trainings
        copy.passes += 1
        self._values.read(few, copy.take)
        if copy.moved or copy.passes == _PASSES:
            copy.is_done = True
            self._said = bool(self._said) or not copy.moved
            self._awake.add(NAME)

    def optimizer_steps(self) -> float | None:
        """1: a copy that was evaluated again stands still; None: none was evaluated
        so often since the last step."""
        said, self._said = self._said, None
        self._awake.discard(NAME)
        return None if said is None else float(said)

    def _read(self, root: torch.nn.Module) -> Iterator[torch.Tensor]:
        for parameter in parameters_in(root):
            if type(parameter) is torch.nn.Parameter and self._values.reads(parameter):
                yield parameter
