"""Module calls, modes, and gradients cleared through a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.prompt_ends import NAME as FIRST_WORDS
from _traincheck.wrapping import wrap_method

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.models import Model
    from _traincheck.watch import Watch


class _Roots:
    """Callbacks for calls that no other module call encloses."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> None:
        watch = self._watch
        watch.loaders.flush()
        if watch.clock.inside_backward():
            return
        watch.process.active = True
        model = watch.models.ensure(args[0])
        watch.holds.settle()
        trains = watch.clock.trains()
        if trains:
            watch.clock.training_forward()  # may close a step
        watch.generators.forward_begins(trains)
        if model is not None:
            watch.teachers.forward_begins(model)
            watch.standing_averages.trains()
            watch.frozen_parts.forward_begins(model)
        if not trains:
            if FIRST_WORDS in watch.awake:
                watch.prompt_ends.evaluates(args, kwargs)
            if model is not None:
                watch.evaluations.evaluates(model)
                watch.schedules.evaluates()
                watch.ungathered_shares.evaluates()
                evaluated = watch.models.held_by(model)
                watch.averages.evaluates(evaluated)
                watch.still_copies.evaluates(evaluated)
                watch.stale_statistics.evaluates(evaluated)
            return
        watch.signs.forward_begins()
        if watch.last_losses.asks() and watch.signs.alone():
            watch.last_losses.forward_begins(args[0])
        watch.blind_samples.forward_begins()
        watch.carried_states.forward_begins(args, kwargs)
        if model is None:
            watch.hidden_parts.plain_tensors.calls(args[0])
            return
        watch.evaluations.trains(model)
        if watch.signs.alone():
            watch.filled_rows.forward_begins(args, kwargs)
        model.claim()
        watch.wrapped_models.forward_begins(model)
        if not watch.recorded.states:
            return
        # Under DDP the forward begins after its broadcast: see ddp.py. A call
        # of a part of a model is no forward of the model.
        root, replicated = naming.unwrap(args[0])
        if not replicated and model.root() is root:
            forward_begins(watch, model, root)

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if not self._watch.clock.inside_backward():
            self._watch.generators.forward_ended()
            self._watch.hidden_parts.forward_ended(args[0], result)
            self._watch.blind_samples.forward_ended()
            if self._watch.last_losses.asks():
                is_known = error is None and self._watch.signs.alone()
                self._watch.last_losses.forward_ended(args, kwargs, result, is_known)
            if error is None and torch.is_grad_enabled():
                self._watch.carried_states.forward_ended(args, kwargs, result)


def forward_begins(
    watch: Watch, model: Model, module: torch.nn.Module, buffers: bool = True
) -> None:
    """The forward of `module`, which is the model's root or a part below it."""
    if not watch.models.refresh(model):
        return
    model.claim()
    watch.holds.settle()
    watch.topology.replicate(watch.models)
    whole = model.root() is module
    parts = model.parts if whole else watch.models.parts_below(module)
    watch.states.parts(watch.core.POINT_FORWARD_BEGIN, parts, buffers)


class _ZeroGrad:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> None:
        self._watch.clock.gradients_cleared()
        if not self._watch.clock.inside_step():
            self._watch.signs.module_clears(args[0])

    def after(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            watch = self._watch
            if not watch.recorded.states:
                return
            parts = watch.models.parts_below(naming.unwrap(args[0])[0])
            watch.states.part_gradients(watch.core.POINT_GRAD_CLEAR, parts)


def install(watch: Watch) -> None:
    module = torch.nn.Module
    roots = _Roots(watch)
    module.__call__ = watch.core.wrap_module_call(
        module.__call__, before_root=roots.before, after_root=roots.after
    )
    wrap_method(watch, module, "train", "train_mode", compiled=True)
    wrap_method(watch, module, "eval", "train_mode", compiled=True)
    zero_grad = _ZeroGrad(watch)
    wrap_method(
        watch,
        module,
        "zero_grad",
        "zero_grad",
        compiled=True,
        before=zero_grad.before,
        after=zero_grad.after,
    )
