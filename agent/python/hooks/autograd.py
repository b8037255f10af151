"""Backward passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.findings import Findings
from _traincheck.frozen_zeros import NAME as FROZEN_ZEROS
from _traincheck.hand_steps import NAME as HAND_STEPS
from _traincheck.loss_graph import roots_of
from _traincheck.loss_lines import causes_of
from _traincheck.masked_rows import NAME as MASKED_ROWS
from _traincheck.new_terms import NAME as NEW_TERM
from _traincheck.number_terms import NAME as NUMBER_TERM
from _traincheck.penalties import NAME as PENALTIES
from _traincheck.prompt_ends import NAME as FIRST_WORDS
from _traincheck.sorted_samples import NAME as SORTED_BATCHES
from _traincheck.still_ratios import NAME as STILL_RATIO
from _traincheck.stray_terms import NAME as STRAY_TERM
from _traincheck.wrapping import wrap_function
from _traincheck.wrapping import wrap_method

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


class _Backward:
    """Tensor.backward calls torch.autograd.backward; checkpointing calls it
    inside a backward. State is recorded at the end of the outermost only."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> bool:
        watch = self._watch
        outermost = watch.clock.enter_backward()
        if outermost:
            watch.process.trains()
            watch.graphs.backward_begins()
            if watch.sorted_samples.awaits_loss():
                watch.sorted_samples.sees_loss(roots_of(args, kwargs))
            watch.signs.backward_begins(_makes_graph(args, kwargs))
            watch.loss_graphs.backward_begins(args, kwargs)
            if watch.half_precision.awaits_scale():
                watch.half_precision.backward_begins(roots_of(args, kwargs))
            if watch.blind_samples.awaits_loss():
                watch.blind_samples.backward_begins(roots_of(args, kwargs))
            if MASKED_ROWS in watch.awake and watch.masked_rows.awaits_loss():
                watch.masked_rows.backward_begins(roots_of(args, kwargs))
            if FROZEN_ZEROS in watch.awake and watch.frozen_zeros.awaits_loss():
                watch.frozen_zeros.backward_begins(roots_of(args, kwargs))
            if FIRST_WORDS in watch.awake:
                self._say(FIRST_WORDS, watch.prompt_ends.backward_begins())
            if watch.repeated_draws.noise.awaits_loss():
                watch.repeated_draws.noise.backward_begins(roots_of(args, kwargs))
            self._look_at_penalties(args, kwargs)
            self._look_at_terms(args, kwargs)
            watch.recomputation.backward_begins()
            if watch.recorded.states:
                # Before gradients appear: a parameter may have joined a group.
                watch.holds.update()
                watch.states.cleared_by_hand()
                watch.hand_clears.backward_begins()
        return outermost

    def _look_at_penalties(self, args: Args, kwargs: Kwargs) -> None:
        penalties = self._watch.penalties
        if penalties.are_asked():
            self._say(PENALTIES, penalties.backward_begins(roots_of(args, kwargs)))

    def _look_at_terms(self, args: Args, kwargs: Kwargs) -> None:
        watch = self._watch
        optimizers = watch.holds.optimizers()
        if not optimizers:
            self._say(HAND_STEPS, watch.hand_steps.backward_begins())
        if watch.sorted_targets.asks(optimizers):
            roots, steps = roots_of(args, kwargs), watch.clock.steps_begun()
            said = watch.sorted_targets.backward_begins(roots, steps)
            self._say(SORTED_BATCHES, said)
        here = watch.new_terms.asks()
        if here is not None:
            roots = roots_of(args, kwargs)
            said = watch.new_terms.backward_begins(here, roots, optimizers)
            self._say(NEW_TERM, said)
            self._say(NUMBER_TERM, watch.number_terms.backward_begins(here, roots))
        here = watch.tied_answers.asks()
        if here is not None:
            tied = watch.tied_answers.backward_begins(here, roots_of(args, kwargs))
            for name, value in tied.items():
                self._say(name, value)
        here = watch.still_ratios.asks()
        if here is not None:
            still = watch.still_ratios.backward_begins(here, roots_of(args, kwargs))
            self._say(STILL_RATIO, still)
        if watch.gathered_rows.awaits_loss():
            roots, steps = roots_of(args, kwargs), watch.clock.steps_begun()
            gathered = watch.gathered_rows.backward_begins(roots, steps)
            watch.loss_lines.record(gathered, {})
        if len(optimizers) > 1:
            roots = roots_of(args, kwargs)
            self._say(STRAY_TERM, watch.stray_terms.backward_begins(roots, optimizers))

    def _say(self, name: str, said: float | None) -> None:
        if said is not None:
            found = Findings({name: said})
            self._watch.loss_lines.record(found, causes_of(found))

    def after(
        self,
        outermost: bool,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        watch = self._watch
        watch.clock.leave_backward()
        if outermost and error is None:
            watch.recomputation.backward_ended()
            watch.signs.backward_ended()
            if not watch.holds.optimizers():
                watch.hand_steps.backward_ended()
            watch.states.all_gradients(watch.core.POINT_BACKWARD_END)


def _makes_graph(args: Args, kwargs: Kwargs) -> bool:
    given = args[3] if len(args) > 3 else kwargs.get("create_graph")
    return given is True


def install(watch: Watch) -> None:
    backward = _Backward(watch)
    callbacks: dict[str, Any] = {
        "before": backward.before,
        "after": backward.after,
        "outermost_only": False,
    }
    wrap_method(watch, torch.Tensor, "backward", "backward", **callbacks)
    wrap_function(watch, torch.autograd, "backward", "backward", **callbacks)
