"""Averaged copies whose updates rounding takes back.

An average moves a small share of the way to its source. Where it is kept in bfloat16,
most of these moves are shorter than half of the distance to the next number, and it
stays where it was: what is evaluated and saved is an average of very few steps. Such
copies are compared over the first steps and now and then later.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at
from _traincheck.rounding import PARAMETERS, Rounding, is_low, part

if TYPE_CHECKING:
    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Model, Models


# Names of parameters of a copy, these, and their sources.
_Samples = list[tuple[str, torch.Tensor, torch.Tensor]]


class _Look:
    """What some parameters of a copy were. It holds none of them."""

    def __init__(self, samples: _Samples) -> None:
        self.samples = [(name, id(copy)) for name, copy, _ in samples]
        self.versions = [copy._version for _, copy, _ in samples]
        self.before: list[torch.Tensor] = []

    def begins(self, values: list[torch.Tensor]) -> None:
        self.before = [value.clone() for value in values]

    def is_of(self, samples: _Samples) -> bool:
        return self.samples == [(name, id(copy)) for name, copy, _ in samples]

    def written(self, samples: _Samples) -> list[bool]:
        """By torch's count."""
        versions = zip(samples, self.versions)
        return [copy._version != version for (_, copy, _), version in versions]


class _Row:
    """One copy."""

    def __init__(self) -> None:
        self.steps = 0
        self.rounding = Rounding()
        self.look: _Look | None = None


class RoundedAverages:
    def __init__(self, models: Models, values: DeviceValues, awake: Awake) -> None:
        self._awake = awake
        self._models = models
        self._values = values
        self._rows: WeakIdentityMap[torch.nn.Module, _Row] = WeakIdentityMap()
        self._said: float | None = None
        self._has_copies = False

    def copy_found(self) -> None:
        self._has_copies = True

    def step_ended(self) -> None:
        """Called when a step has closed."""
        if not self._has_copies:
            return
        for model in self._models.all():
            root = model.root()
            if root is None or not model.shadow_of:
                continue
            row = self._rows.get(root)
            if row is None:
                row = _Row()
                self._rows.set(root, row)
            self._look_at(model, row)

    def optimizer_steps(self) -> float | None:
        """1: hardly anything of such a copy moved where it was updated; None: there
        is none."""
        return self._said

    def _look_at(self, model: Model, row: _Row) -> None:
        look, row.look = row.look, None
        number, row.steps = row.steps, row.steps + 1
        samples: _Samples = []
        if look is not None or looks_at(number):
            samples = self._samples(model)
        copies = [copy for _, copy, _ in samples]
        if look is not None and copies and look.is_of(samples):
            written = look.written(samples)
            both = copies + [source for _, _, source in samples]
            self._values.read(
                list(map(part, both)),
                functools.partial(self._compare, row.rounding, look, written),
            )
        if looks_at(number) and copies:
            row.look = _Look(samples)
            self._values.read(list(map(part, copies)), row.look.begins)

    def _compare(
        self,
        rounding: Rounding,
        look: _Look,
        written: list[bool],
        now: list[torch.Tensor],
    ) -> None:
        pushed = moved = 0
        count = len(look.before)
        for i, (copy, source) in enumerate(zip(now[:count], now[count:])):
            before = look.before[i]
            was_written = written[i] or not torch.equal(copy, before)
            if was_written and copy.shape == before.shape:
                push = source.to(before.dtype) != before
                pushed += int(push.sum())
                moved += int(((copy != before) & push).sum())
        takes = rounding.takes(moved, pushed)
        if takes is not None:
            self._said = float(bool(self._said) or takes)
            self._awake.add("opt.average_rounded_away")

    def _samples(self, model: Model) -> _Samples:
        low = [(name, tensor) for name, _, tensor in model.params() if is_low(tensor)]
        if not low:
            return []
        known = {
            variable: tensor
            for other in self._models.all()
            if other is not model and not other.shadow_of
            for _, variable, tensor in other.params()
        }
        samples: _Samples = []
        for name, tensor in low[:PARAMETERS]:
            source = known.get(model.shadow_of.get(name, 0))
            if source is None or source.shape != tensor.shape:
                continue
            if self._values.reads(tensor) and self._values.reads(source):
                samples.append((name, tensor, source))
        return samples
