"""What the user tells us through the module traincheckd.

Its functions look this module up by name and call into it. They return before
anything is written where the agent is not installed or was left behind by a
fork that has not used it yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.optimizers import wrap_steps
from _traincheck.tracked import Tracked
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from _traincheck.states import States
    from typing import Any

    from traincheck_core import Core

    from _traincheck.watch import Watch

_watch: Watch | None = None
_tracked: Tracked | None = None  # of the process _tracked_in
_tracked_in: States | None = None


def _stages(core: Core) -> dict[str | None, int]:
    return {
        None: core.USER_STAGE_NONE,
        "init": core.USER_STAGE_INIT,
        "training": core.USER_STAGE_TRAINING,
        "evaluation": core.USER_STAGE_EVALUATION,
    }


def step() -> None:
    if _watch is not None:
        quietly(_watch.core, _watch.clock.user_step)


def name_stage(name: str | None) -> int | None:
    """Returns the stage to go back to."""
    if _watch is None:
        return None
    before = _watch.clock.user_stage()
    number = _stages(_watch.core).get(name)
    if number is None:
        _watch.core.log_once(
            f"stage:{name}",
            f"traincheckd.stage({name!r}): it is training, evaluation, init or None",
        )
    else:
        quietly(_watch.core, _watch.clock.name_stage, number)
    return before


def return_to_stage(number: int | None) -> None:
    if _watch is not None and number is not None:
        quietly(_watch.core, _watch.clock.name_stage, number)


def track(obj: Any, name: str | None) -> None:
    if _watch is not None:
        quietly(_watch.core, _track, _watch, obj, name)


def _track(watch: Watch, obj: Any, name: str | None) -> None:
    if isinstance(obj, torch.nn.Module):
        watch.models.ensure(obj, name)
        watch.holds.settle()
    elif isinstance(obj, torch.Tensor):
        if name:
            _tensors(watch).add(obj, str(name))
        else:
            _cannot(watch, "a tensor needs a name")
    elif obj is None:
        if name:
            _tensors(watch).remove(str(name))
    elif _is_optimizer(obj):
        _track_optimizer(watch, obj)
    else:
        _cannot(watch, f"{type(obj).__name__} is not a module, tensor or optimizer")


def _cannot(watch: Watch, why: str) -> None:
    watch.core.log_once(f"track:{why}", f"traincheckd.track: {why}")


def _is_optimizer(obj: Any) -> bool:
    groups = getattr(obj, "param_groups", None)
    return (
        callable(getattr(obj, "step", None))
        and isinstance(groups, list)
        and all(isinstance(group, dict) and "params" in group for group in groups)
    )


def _track_optimizer(watch: Watch, optimizer: torch.optim.Optimizer) -> None:
    """One that derives from no optimizer of torch."""
    for cls in type(optimizer).__mro__:
        if cls is not object and cls is not torch.optim.Optimizer:
            wrap_steps(watch, cls)
    watch.process.trains()
    watch.holds.ensure(optimizer)


def _tensors(watch: Watch) -> Tracked:
    """A forked child begins with none, as with all tables."""
    global _tracked, _tracked_in
    if _tracked is None or _tracked_in is not watch.states:
        _tracked, _tracked_in = Tracked(watch), watch.states
    return _tracked


def install(watch: Watch) -> None:
    global _watch
    _watch = watch
