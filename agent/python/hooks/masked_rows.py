"""Rows that a script takes out of a step, and that the step changes all the same.

Zero is a gradient: weight decay and moments move a row whose gradient was set to 0
after the backward. Who wants to keep it freezes it, or puts it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at

_PARAMETERS = 4  # of an optimizer, of two dimensions
_MOST = 1 << 22  # elements of one
_ROWS = 64  # that are compared
_PLAIN = (torch.Tensor, torch.nn.Parameter)

if TYPE_CHECKING:
    # Which rows are out, and what some of them were as the step began.
    Masked = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.given: dict[int, torch.Tensor] = {}  # by place: rows with a gradient
        self.masked: dict[int, Masked] = {}


class MaskedRows:
    """Called while one thread trains; see signs.py."""

    def __init__(self) -> None:
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._rows.set(optimizer, _Row())

    def backward_ended(self) -> None:
        for optimizer in self._rows.keys():
            row = self._rows.get(optimizer)
            if row is None or not looks_at(row.steps):
                continue
            row.given = {
                place: _with_gradient(parameter)
                for place, parameter in enumerate(_tables(optimizer))
            }

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: rows that were taken out of the last step have changed since it began;
        None: none was taken out."""
        row = self._rows.get(optimizer)
        if row is None or not row.given and not row.masked:
            if row is not None:
                row.steps += 1
            return None
        before, row.masked = row.masked, {}
        given, row.given = row.given, {}
        row.steps += 1
        changed: list[bool] = []
        for place, parameter in enumerate(_tables(optimizer)):
            out = _taken_out(parameter, given.get(place))
            if place in before:
                changed.append(_has_changed(parameter, out, before[place]))
            if out is not None:
                some = out.nonzero()[:_ROWS, 0]
                row.masked[place] = (out, some, parameter.detach()[some].clone())
        return float(any(changed)) if changed else None


def _tables(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if type(parameter) not in _PLAIN or type(gradient) is not torch.Tensor:
                continue
            if parameter.dim() != 2 or parameter.numel() > _MOST:
                continue
            if parameter.is_cpu and gradient.layout == torch.strided:
                found.append(parameter)
                if len(found) == _PARAMETERS:
                    return found
    return found


def _with_gradient(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    assert gradient is not None
    return gradient.any(1)


def _taken_out(
    parameter: torch.Tensor, given: torch.Tensor | None
) -> torch.Tensor | None:
    """The rows that have lost their gradient since the backward, some others having
    kept theirs; None: there are none, or it is not known."""
    if given is None or len(given) != len(parameter):
        return None
    now = _with_gradient(parameter)
    out = given & ~now
    return out if bool(out.any()) and bool(now.any()) else None


def _has_changed(
    parameter: torch.Tensor, out: torch.Tensor | None, before: Masked
) -> bool:
    """Of rows that are taken out again: what the script puts back in between has
    not changed."""
    was_out, some, values = before
    if out is None or len(out) != len(was_out):
        return False
    again = out[some]
    return not torch.equal(parameter.detach()[some][again], values[again])
