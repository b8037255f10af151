"""Noise that is added to the targets to make the inputs, and is the same in each step.

A generator of the user's own that is made or seeded anew for each batch gives the first
row of each batch the same noise, and so on: the model learns to take this noise away, not
noise. torch's own generator does not show it. What the first layer is given, less the
targets, does, where a model is to give back what its input was made of.

A pattern that belongs to places (a background, the bias of each sensor) repeats, too: it
is the same in all rows, or smooth. Noise is neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import ERRORS, saved, walk
from _traincheck.raw_inputs import given_to

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_STEPS = 8  # that are looked at
_HABIT = 3  # repetitions in a row
_MAX_NODES = 256
_ROWS, _WIDTH = 16, 64  # that are compared
_NARROWEST = 16
_LEAST = 0.01  # of the targets' deviation
_ROUNDING = 1e-5  # of the largest number
_TURNS = 0.25  # changes of sign, of all neighbours
_PRECISE = (torch.float32, torch.float64)


class _Look:
    def __init__(self, targets: torch.Tensor, noise: torch.Tensor) -> None:
        """[rows, width], of its own memory."""
        self.targets = targets
        self.noise = noise


class RepeatedNoise:
    def __init__(self) -> None:
        self._steps = 0
        self._looked = False  # in this step
        self._last: _Look | None = None
        self._times = 0
        self._said: bool | None = None  # of this step

    def awaits_loss(self) -> bool:
        return self._steps < _STEPS and not self._looked

    def backward_begins(self, roots: list[Node]) -> None:
        """Called with the first one of each step, while it awaits one."""
        self._looked = True
        now, last = _look(roots), self._last
        self._last = now
        if now is None or last is None or now.noise.shape != last.noise.shape:
            self._times, self._said = 0, None
            return
        if bool((now.targets == last.targets).all(1).any()):
            self._times, self._said = 0, None  # whose samples come again
            return
        largest = max(float(now.noise.abs().max()), float(now.targets.abs().max()))
        apart = (now.noise - last.noise).abs().max()
        is_same = float(apart) <= _ROUNDING * largest
        self._times = self._times + 1 if is_same else 0
        self._said = self._times >= _HABIT if self._times in (0, _HABIT) else None

    def optimizer_steps(self) -> bool | None:
        """Does the noise of the last steps repeat? None: it is not known."""
        self._steps += self._looked
        said, self._said, self._looked = self._said, None, False
        if self._steps >= _STEPS:
            self._last = None
        elif self._times >= _HABIT:
            self._times = _HABIT - 1
        return said


def _look(roots: list[Node]) -> _Look | None:
    """None: there are no targets to which noise was added."""
    targets: torch.Tensor | None = None
    given: list[torch.Tensor] = []
    for node in walk(roots, _MAX_NODES):
        if node.name() in ERRORS:
            if targets is not None:
                return None
            targets = saved(node, "target")
        else:
            one = given_to(node)
            if one is not None:
                given.append(one)
    if targets is None or targets.dtype not in _PRECISE:
        return None
    for one in given:
        if one.numel() == targets.numel() and one.dtype == targets.dtype:
            return _compare(targets, one)
    return None


def _compare(targets: torch.Tensor, given: torch.Tensor) -> _Look | None:
    if targets.dim() < 2 or len(targets) < _ROWS:
        return None
    wanted = targets[:_ROWS].reshape(_ROWS, -1)[:, :_WIDTH]
    noise = given.reshape(targets.shape)[:_ROWS].reshape(_ROWS, -1)[:, :_WIDTH] - wanted
    return _Look(wanted.clone(), noise) if _is_noise(noise, wanted) else None


def _is_noise(given: torch.Tensor, targets: torch.Tensor) -> bool:
    """given: [rows, width]."""
    if given.shape[1] < _NARROWEST or not bool(given.isfinite().all()):
        return False
    if float(given.std()) <= _LEAST * float(targets.std()):
        return False
    above = given > given.mean(1, keepdim=True)
    turns = (above[:, 1:] != above[:, :-1]).float().mean()
    apart = (given[:, None] - given).abs().amax(-1)
    apart.fill_diagonal_(float("inf"))
    return float(turns) >= _TURNS and float(apart.min()) > _LEAST * float(given.std())
