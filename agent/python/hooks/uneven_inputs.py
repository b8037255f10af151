"""Ranks whose inputs have ended, in torch's Join.

Until the others have read theirs, such a rank takes part in their collectives without a
step of its own, and is given their model at the end. Its steps are counted on, so that
ranks stay in step with each other behind the Join.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.algorithms.join import Joinable
from torch.nn.parallel import distributed

from _traincheck.holds import parameters_of
from _traincheck.module_content import parameters_in
from _traincheck.observing import observe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import torch
    from traincheck_core import Args

    from _traincheck.watch import Watch


def install(watch: Watch) -> None:
    def shadowed(hook: Any, args: Args, result: Any) -> None:
        # Without it the others are within no_sync: they make no step.
        if hook.ddp.require_forward_param_sync:
            for optimizer in _optimizers_of(watch, hook.ddp):
                held = watch.holds.ensure(optimizer)
                watch.clock.others_step(held.number)
                held.others_step()

    def ended(hook: Any, args: Args, result: Any) -> None:
        for optimizer in _optimizers_of(watch, hook.ddp):
            watch.states.loaded(optimizer)

    observe(watch, distributed._DDPJoinHook, "main_hook", after=shadowed)
    observe(watch, distributed._DDPJoinHook, "post_hook", after=ended)


def _optimizers_of(
    watch: Watch, model: torch.nn.Module
) -> Iterator[torch.optim.Optimizer]:
    """Those that have stepped with its parameters; one that joins itself steps on."""
    own = set(map(id, parameters_in(model)))
    for optimizer in watch.holds.optimizers():
        if isinstance(optimizer, Joinable) or not watch.holds.ensure(optimizer).steps:
            continue
        if any(id(parameter) in own for parameter in parameters_of(optimizer)):
            yield optimizer
