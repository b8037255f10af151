"""Optimizers: construction, steps, gradients cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.hyper_parameters import counter_bits
from _traincheck.observing import observe
from _traincheck.unwrapped_parts import NAME as BESIDE_WRAPPER
from _traincheck.wrapping import wrap_method

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.holds import Held
    from _traincheck.watch import Watch


class _Construction:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> None:
        # Before torch puts its own function around the class's step.
        for cls in type(args[0]).__mro__:
            if cls is torch.optim.Optimizer:
                break
            wrap_steps(self._watch, cls)

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            self._watch.process.trains()
            self._watch.holds.ensure(args[0])
            self._watch.signs.made(args[0])
        # Whether or not it is one now: facts know only that the call began.
        self._watch.core.step_optimizer_made()


class _Step:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(
        self, args: Args, kwargs: Kwargs
    ) -> tuple[Held, list[int], list[torch.Tensor]] | None:
        watch, optimizer = self._watch, args[0]
        watch.clock.enter_step()
        watch.graphs.optimizer_steps(optimizer)
        watch.loaders.flush()
        watch.process.trains()
        watch.process.steps()
        watch.states.clear_recorded = False
        held = watch.holds.complete(optimizer)
        watch.clock.optimizer_steps(held.number)
        held.count_step(watch.core)
        watch.sight.optimizer_steps(optimizer, held)
        if watch.signs.alone():
            watch.averaged_gradients.optimizer_steps(optimizer, held)
            beside = watch.unwrapped_parts.optimizer_steps(optimizer, held)
            if beside is not None:
                number = held.number
                point = watch.core.POINT_PRE_STEP
                watch.core.record_scalar(number, point, 0, BESIDE_WRAPPER, beside)
        point = watch.core.POINT_PRE_STEP
        numbers = held.group_numbers.of(optimizer)
        bits = counter_bits(optimizer)
        if bits is not None:
            numbers["counter_bits", 0] = bits
        numbers.update(watch.schedules.optimizer_steps(optimizer))
        numbers.update(watch.signs.steps(optimizer))
        lost = watch.ties.lost(optimizer)
        if lost is not None:
            watch.core.record_scalar(held.number, point, 0, "ties_lost", float(lost))
        held.hyper_parameters.write(watch.core, held.number, point, numbers)
        alone = held.claim()
        if not watch.recorded.states:
            return None
        variables, tensors = held.state(optimizer)
        if alone:
            watch.states.both(point, variables, tensors)
        else:
            watch.states.data(point, variables, tensors)
        return held, variables, tensors

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        watch = self._watch
        watch.clock.leave_step()
        if error is None:
            watch.signs.stepped(args[0])
            watch.hand_clears.stepped(args[0])
        if token is not None and error is None:
            self._record(args[0], *token)

    def _record(
        self,
        optimizer: torch.optim.Optimizer,
        held: Held,
        variables: list[int],
        tensors: list[torch.Tensor],
    ) -> None:
        """Parameters and state behind its step."""
        watch, point = self._watch, self._watch.core.POINT_POST_STEP
        what = watch.states.asked("optimizer_state.data", point)
        # A device is asked once for both.
        together = what == watch.states.asked("parameter.data", point)
        if not what or not together:
            watch.states.data(point, variables, tensors)
        if what:
            held.optimizer_state.record(
                watch.core,
                point,
                what,
                held,
                optimizer,
                watch.models,
                *((variables, tensors) if together else ((), ())),
            )


class _ZeroGrad:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> None:
        self._watch.clock.gradients_cleared()
        self._watch.hand_clears.cleared(args[0])
        if not self._watch.clock.inside_step():
            self._watch.signs.clears(args[0])

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        watch, optimizer = self._watch, args[0]
        if error is not None or not watch.recorded.states:
            return
        held = watch.holds.ensure(optimizer)
        if held.complete and held.claim():
            watch.states.gradients(watch.core.POINT_GRAD_CLEAR, *held.state(optimizer))


def wrap_steps(watch: Watch, cls: type[Any]) -> None:
    """Wraps what cls itself defines; a class that torch has hooked is done."""
    step = cls.__dict__.get("step")
    if not getattr(step, "hooked", False):
        callbacks = _Step(watch)
        wrap_method(
            watch,
            cls,
            "step",
            "optimizer_step",
            before=callbacks.before,
            after=callbacks.after,
        )
    # Schedule-free ones have two points to look from: what they exchange is theirs.
    for name in ("train", "eval"):
        observe(
            watch,
            cls,
            name,
            after=lambda optimizer, args, result: watch.states.loaded(optimizer),
        )
    clears = _ZeroGrad(watch)
    wrap_method(
        watch,
        cls,
        "zero_grad",
        "zero_grad",
        before=clears.before,
        after=clears.after,
    )


def install(watch: Watch) -> None:
    base = torch.optim.Optimizer
    wrap_steps(watch, base)
    for cls in set(naming.subclasses(base)):
        wrap_steps(watch, cls)
    callbacks = _Construction(watch)
    wrap_method(
        watch,
        base,
        "__init__",
        "optimizer_init",
        before=callbacks.before,
        after=callbacks.after,
    )
