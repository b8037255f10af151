"""Copies whose parameters follow the training, and whose BatchNorms do not.

An average or a target network that is updated over parameters() leaves the buffers out:
its BatchNorms keep the statistics of the day when it was copied, which belong to other
weights. In evaluation mode they normalise by these. Who moves the buffers, too, gathers
them anew (update_bn) or calls the copy in training mode needs none of that. They may be
taken over every few steps.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from _traincheck.device_values import first_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in

if TYPE_CHECKING:
    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Model
    from _traincheck.models import Models

# Name of the scalar.
NAME = "opt.copy_keeps_statistics"

_ELEMENTS = 64
_LOOKS = 64  # at a copy
_STEPS = 5  # of all optimizers, in which they have stood


class _Copy:
    """A copy in evaluation mode, as it was when it was last called."""

    def __init__(self, norm: _BatchNorm, source: _BatchNorm) -> None:
        self.norm, self.source = weakref.ref(norm), weakref.ref(source)
        self.looks = 0
        self.stands: bool | None = None  # None: not known yet
        self.step = 0  # at the first look
        self._before: list[int] = []

    def is_open(self) -> bool:
        return self.stands is None and self.looks < _LOOKS

    def take(self, step: int, values: list[torch.Tensor]) -> None:
        """A parameter, the copy's statistics and its source's, after so many steps."""
        now = [hash(tuple(value.tolist())) for value in values]
        before = self._before
        if not before:
            self._before, self.step = now, step
            return
        if now[1] != before[1]:
            self.stands = False
        elif now[0] != before[0] and now[2] != before[2]:
            self.stands = True if step - self.step >= _STEPS else None


class StaleStatistics:
    def __init__(self, models: Models, values: DeviceValues, awake: Awake) -> None:
        self._models = models
        self._values = values
        self._awake = awake
        # None: it has nothing to be looked at.
        self._copies: WeakIdentityMap[torch.nn.Module, tuple[_Copy | None]]
        self._copies = WeakIdentityMap()
        self._said: bool | None = None
        self._steps = 0  # since a copy was found

    def evaluates(self, model: Model) -> None:
        """Called before an outermost forward without gradients."""
        root = model.root()
        if root is None or not model.shadow_of:
            return
        row = self._copies.get(root)
        if row is None:
            row = (self._find(root, model),)
            self._copies.set(root, row)
            self._awake.add(NAME)
        if row[0] is not None:
            self._look(root, row[0])

    def optimizer_steps(self) -> float | None:
        """1: a copy that was called has statistics that stand still; None: nothing has
        turned out since the last step."""
        said, self._said = self._said, None
        self._steps += 1
        if not any(row[0] and row[0].is_open() for row in self._copies.values()):
            self._awake.discard(NAME)
        return None if said is None else float(said)

    def _look(self, root: torch.nn.Module, copy: _Copy) -> None:
        norm, source = copy.norm(), copy.source()
        parameter = next(parameters_in(root), None)
        if not copy.is_open() or parameter is None:
            return
        if norm is None or source is None or norm.training:
            return
        tensors = [parameter.detach(), norm.running_mean, source.running_mean]
        few = [
            first_of(tensor, _ELEMENTS)
            for tensor in tensors
            if isinstance(tensor, torch.Tensor) and self._values.reads(tensor)
        ]
        if len(few) != len(tensors):
            return
        copy.looks += 1
        step = self._steps

        def take(values: list[torch.Tensor]) -> None:
            copy.take(step, values)
            if copy.stands is not None:
                self._said = bool(self._said) or copy.stands
                self._awake.add(NAME)

        self._values.read(few, take)

    def _find(self, root: torch.nn.Module, model: Model) -> _Copy | None:
        """The first of its BatchNorms, and that of the model that it is a copy of."""
        number = self._models.root_of(next(iter(model.shadow_of.values())))
        sources = (one.root() for one in self._models.all() if one.number == number)
        source = next(sources, None)
        if source is None or source is root:
            return None
        theirs = dict(source.named_modules())
        for name, module in root.named_modules():
            twin = theirs.get(name, theirs.get(name.partition(".")[2]))
            if isinstance(module, _BatchNorm) and isinstance(twin, _BatchNorm):
                if module.running_mean is not None and twin is not module:
                    return _Copy(module, twin)
        return None
