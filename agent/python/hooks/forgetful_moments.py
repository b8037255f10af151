"""Moments that hold nothing but the latest gradient.

An optimizer that makes its buffers anew at each step, or writes them into a copy, is
plain gradient descent by another name. Such a moment is a multiple of the gradient
that it was just given, while gradients differ from step to step. One that is not, at
some step, is kept: it may be set to 0 now and then. Coefficients of 0 (Adam's first
beta in adversarial trainings) ask for that.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at_two

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.device_values import DeviceValues

_ELEMENTS = 64
_MOST_ROWS = 64  # of one optimizer; more are of parameters that are gone
_FEWEST = 16  # elements whose gradient is not zero
_CLOSE = 1e-4
# How far gradients in a row are apart that are told from each other in a moment, as a
# share of the larger one: the one before may be next to nothing (a layer that learns
# nothing at first).
_APART = 1e-2
# Of what holds a gradient of before, on purpose.
_KEPT = ("prev", "last", "old", "grad")
_COEFFICIENTS = ("momentum", "beta", "betas", "beta1")


class _Row:
    """One parameter, as long as it keeps its state."""

    def __init__(self) -> None:
        # As at its last step: held from a look to the next step alone, else it would
        # keep moments that the script has thrown away.
        self.state: Any = None
        self.state_id: int | None = None
        self.steps = 0
        self.kept: set[int] = set()  # places of moments that were no multiples once
        self.gradient: torch.Tensor | None = None  # at the last look
        self.number = 0  # the step of it
        self.said: float | None = None

    def is_of(self, state: Any) -> bool:
        known = self.state_id in (None, id(state))
        return known and (self.state is None or self.state is state)

    def see(self, state: Any, holds: bool) -> None:
        self.state, self.state_id = state if holds else None, id(state)

    def look(self, number: int, values: list[torch.Tensor]) -> None:
        """values: of the gradient and the moments at a step."""
        gradient, *moments = (value.double() for value in values)
        before, follows = self.gradient, self.number == number - 1
        self.gradient, self.number = gradient.clone(), number
        self._look_for_kept(gradient, moments)
        if before is None or not follows or not moments:
            return
        # Not where this is the first gradient that is not zero (a row of an embedding
        # that is used for the first time), nor one like the one before.
        both = (before != 0) & (gradient != 0)
        if int(both.sum()) < _FEWEST or not _are_apart(before[both], gradient[both]):
            return
        found = (
            place not in self.kept and _are_multiples(moment[both], gradient[both])
            for place, moment in enumerate(moments)
        )
        self.said = float(any(found))

    def _look_for_kept(
        self, gradient: torch.Tensor, moments: list[torch.Tensor]
    ) -> None:
        known = gradient != 0
        if int(known.sum()) < _FEWEST:
            return
        for place, moment in enumerate(moments):
            some = moment[known]
            if bool(some.any()) and not _are_multiples(some, gradient[known]):
                self.kept.add(place)


class ForgetfulMoments:
    def __init__(self, values: DeviceValues) -> None:
        self._values = values
        # By id of the parameter: DeepSpeed gives an optimizer its groups in turn, a
        # step each.
        self._rows: WeakIdentityMap[
            torch.optim.Optimizer, dict[int, _Row]
        ] = WeakIdentityMap()

    def stepped(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: at a look, some moment was a multiple of the gradient; None: no look that
        is not known yet, or none."""
        parameter = self._first(optimizer)
        if parameter is None or parameter.grad is None:
            return None
        row = self._row_of(optimizer, parameter)
        number, row.steps = row.steps, row.steps + 1
        # The step before a look is needed, too.
        looks = looks_at_two(number)
        row.see(optimizer.state.get(parameter), holds=looks)
        if looks:
            read = [parameter.grad, *self._moments(optimizer, parameter)]
            self._values.read(
                [first_of(tensor, _ELEMENTS) for tensor in read],
                functools.partial(row.look, number),
            )
        said, row.said = row.said, None
        return said

    def _row_of(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor
    ) -> _Row:
        rows = self._rows.get(optimizer)
        if rows is None or len(rows) > _MOST_ROWS:
            rows = {}
            self._rows.set(optimizer, rows)
        state = optimizer.state.get(parameter)
        row = rows.get(id(parameter))
        if row is None or not row.is_of(state):
            row = rows[id(parameter)] = _Row()
        _let_go(rows, row, optimizer)
        return row

    def _first(self, optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
        """A parameter whose gradient can be read."""
        for group in optimizer.param_groups:
            if _asks_to_forget(group):
                continue
            for parameter in group["params"]:
                gradient = parameter.grad
                if type(gradient) is torch.Tensor and self._is_plain(gradient):
                    if gradient.numel() >= _FEWEST:
                        found: torch.Tensor = parameter
                        return found
        return None

    def _moments(
        self, optimizer: torch.optim.Optimizer, parameter: torch.Tensor
    ) -> Iterator[torch.Tensor]:
        state: Any = optimizer.state.get(parameter)
        if not isinstance(state, dict):
            return
        for name, value in state.items():
            kept = any(word in str(name) for word in _KEPT)
            if type(value) is torch.Tensor and not kept and self._is_plain(value):
                if value.shape == parameter.shape:
                    yield value

    def _is_plain(self, tensor: torch.Tensor) -> bool:
        known = tensor.dtype in (torch.float32, torch.float64)
        return known and self._values.reads(tensor)


def _let_go(rows: dict[int, _Row], row: _Row, optimizer: torch.optim.Optimizer) -> None:
    """Of states that the optimizer itself has let go; row has the one of now."""
    others = [one for one in rows.values() if one.state is not None and one is not row]
    if others:
        held = {id(state) for state in optimizer.state.values()}
        for other in others:
            if id(other.state) not in held:
                other.state = None
                other.gradient = None


def _asks_to_forget(group: dict[str, Any]) -> bool:
    """Is one of its coefficients 0?"""
    for name in _COEFFICIENTS:
        coefficient = group.get(name)
        if isinstance(coefficient, (tuple, list)) and coefficient:
            coefficient = coefficient[0]
        if isinstance(coefficient, (int, float)) and coefficient == 0:
            return True
    return False


def _are_apart(before: torch.Tensor, gradient: torch.Tensor) -> bool:
    """Would a moment that holds something of the gradient before be no multiple of the
    gradient?"""
    shares = before / gradient
    share = shares.median()
    far = (shares - share).abs().max()
    return bool(far >= _APART * share.abs().clamp(min=1.0))


def _are_multiples(some: torch.Tensor, gradient: torch.Tensor) -> bool:
    """Is it the same multiple of the gradient everywhere, and not 0?"""
    shares = some / gradient
    share = shares.median()
    return bool(share != 0) and bool(
        ((shares - share).abs() <= _CLOSE * share.abs()).all()
    )
