"""Averaged copies whose updates rounding takes back.

An average moves a small share of the way to its source. Where it is kept in bfloat16,
most of these moves are shorter than half of the distance to the next number, and it
stays where it was: what is evaluated and saved is an average of very few steps. Such
copies are compared over the first steps and now and then later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at
from _traincheck.rounding import PARAMETERS, PLAIN, Rounding, is_low, part

if TYPE_CHECKING:
    from _traincheck.models import Model, Models

    # A copy's parameter, its source, and what the copy was and how often written.
    Sample = tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]


class _Row:
    """One copy."""

    def __init__(self) -> None:
        self.steps = 0
        self.rounding = Rounding()
        self.samples: list[Sample] = []


class RoundedAverages:
    def __init__(self, models: Models) -> None:
        self._models = models
        self._rows: WeakIdentityMap[torch.nn.Module, _Row] = WeakIdentityMap()
        self._said: float | None = None

    def step_ended(self) -> None:
        """Called when a step has closed."""
        for model in self._models.all():
            root = model.root()
            if root is None or not model.shadow_of:
                continue
            row = self._rows.get(root)
            if row is None:
                row = _Row()
                self._rows.set(root, row)
            self._look(model, row)

    def optimizer_steps(self) -> float | None:
        """1: hardly anything of such a copy moved where it was updated; None: there
        is none."""
        return self._said

    def _look(self, model: Model, row: _Row) -> None:
        samples, row.samples = row.samples, []
        pushed = moved = 0
        for copy, source, before, version in samples:
            now = part(copy)
            was_written = copy._version != version or not torch.equal(now, before)
            if was_written and now.shape == before.shape:
                push = part(source).to(before.dtype) != before
                pushed += int(push.sum())
                moved += int(((now != before) & push).sum())
        takes = row.rounding.takes(moved, pushed)
        if takes is not None:
            self._said = float(bool(self._said) or takes)
        number, row.steps = row.steps, row.steps + 1
        if looks_at(number):
            row.samples = self._samples(model)

    def _samples(self, model: Model) -> list[Sample]:
        low = [(name, tensor) for name, _, tensor in model.params() if is_low(tensor)][
            :PARAMETERS
        ]
        if not low:
            return []
        sources = {
            variable: tensor
            for other in self._models.all()
            if other is not model and not other.shadow_of
            for _, variable, tensor in other.params()
        }
        samples: list[Sample] = []
        for name, tensor in low:
            source = sources.get(model.shadow_of.get(name, 0))
            if source is None or type(source) not in PLAIN or not source.is_cpu:
                continue
            if source.shape == tensor.shape:
                before = part(tensor).clone()
                samples.append((tensor, source, before, tensor._version))
        return samples
