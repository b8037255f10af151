"""Gradient clipping."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch
from torch.nn.utils import clip_grad

from _traincheck.holds import parameters_of
from _traincheck.wrapping import wrap_function

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.step_lines import StepLines
    from _traincheck.watch import Watch

NAME = "opt.clips_nothing"  # of the scalar
_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")


class Clipped:
    """Calls since a step, by whether they were given anything to clip.

    `model.parameters()` is a generator: one that an optimizer has been made of
    gives nothing more, and clipping it does nothing. Nor does it where it comes between
    zero_grad and the backward. An empty list is meant where another call is given the
    parameters that are trained.
    """

    def __init__(self, lines: StepLines, awake: Awake) -> None:
        self._lines = lines
        self._awake = awake
        self._clips = False  # does anybody?
        self._used_up = False  # was one of them given an exhausted generator?
        self._empty: set[bool] = set()  # was what they were given an empty list?
        # Optimizers (by id) without any gradient when clipping last found nothing.
        self._too_early: frozenset[int] = frozenset()

    def called(self, parameters: Any) -> None:
        if type(parameters) in (filter, map):
            # What it goes through: asked for without taking anything of it.
            parameters = parameters.__reduce__()[1][-1]
        is_used_up = inspect.isgenerator(parameters) and parameters.gi_frame is None
        is_empty = type(parameters) in (list, tuple) and len(parameters) == 0
        if is_used_up or (is_empty and not self._used_up):
            self._lines.here(NAME)
        self._used_up = self._used_up or is_used_up
        self._empty.add(is_empty)
        self._clips = True
        self._awake.add(NAME)

    def ended(self, norm: Any, optimizers: Collection[torch.optim.Optimizer]) -> None:
        """norm: what it returned; that of no gradients is 0, and on no device."""
        self._too_early = frozenset()
        is_here = type(norm) is torch.Tensor and norm.is_cpu
        if is_here and norm == 0 and not any(map(_has_gradients, optimizers)):
            self._too_early = frozenset(map(id, optimizers))
            self._lines.here(NAME)

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: nothing was there to be clipped; None: nobody clips."""
        if not self._clips:
            return None
        # Without any gradient until now, a bad batch is left out.
        is_early = id(optimizer) in self._too_early
        is_early = is_early and _has_gradients(optimizer)
        found = is_early or self._used_up or self._empty == {True}
        self._used_up, self._too_early = False, frozenset()
        self._empty.clear()
        return float(found)


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    return any(one.grad is not None for one in parameters_of(optimizer))


class _Clip:
    """The parameters may come as a generator, which must not be consumed here:
    the gradients of all known parameters are recorded."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> None:
        watch = self._watch
        watch.clipped.called(args[0] if args else kwargs.get("parameters"))
        watch.repeated_clips.clip_begins()
        watch.states.all_gradients(watch.core.POINT_PRE_CLIP)

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        watch = self._watch
        if error is None:
            watch.clipped.ended(result, watch.holds.optimizers())
            watch.repeated_clips.clip_ended(result, args, kwargs)
            watch.states.all_gradients(watch.core.POINT_POST_CLIP)


def install(watch: Watch) -> None:
    clip = _Clip(watch)
    for name in _FUNCTIONS:
        wrap_function(
            watch, clip_grad, name, "clip_grad", before=clip.before, after=clip.after
        )
