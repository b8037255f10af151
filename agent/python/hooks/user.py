"""What the user tells us through the module traincheckd.

Its functions look this module up by name and call into it. They return before
anything is written where the agent is not installed or was left behind by a
fork that has not used it yet.
"""

import torch

from _traincheck.optimizers import wrap_steps
from _traincheck.tracked import Tracked
from _traincheck.wrapping import quietly

_watch = None
_tracked = None  # of the process _tracked_in
_tracked_in = None


def _stages(core):
    return {
        None: core.USER_STAGE_NONE,
        "init": core.USER_STAGE_INIT,
        "training": core.USER_STAGE_TRAINING,
        "evaluation": core.USER_STAGE_EVALUATION,
    }


def step():
    if _watch is not None:
        quietly(_watch.core, _watch.clock.user_step)


def name_stage(name):
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


def return_to_stage(number):
    if _watch is not None and number is not None:
        quietly(_watch.core, _watch.clock.name_stage, number)


def track(obj, name):
    if _watch is not None:
        quietly(_watch.core, _track, obj, name)


def _track(obj, name):
    if isinstance(obj, torch.nn.Module):
        _watch.models.ensure(obj, name)
        _watch.holds.settle()
    elif isinstance(obj, torch.Tensor):
        if name:
            _tensors().add(obj, str(name))
        else:
            _cannot("a tensor needs a name")
    elif obj is None:
        _tensors().remove(name)
    elif _is_optimizer(obj):
        _track_optimizer(obj)
    else:
        _cannot(f"{type(obj).__name__} is no module, tensor or optimizer")


def _cannot(why):
    _watch.core.log_once(f"track:{why}", f"traincheckd.track: {why}")


def _is_optimizer(obj):
    groups = getattr(obj, "param_groups", None)
    return (
        callable(getattr(obj, "step", None))
        and isinstance(groups, list)
        and all(isinstance(group, dict) and "params" in group for group in groups)
    )


def _track_optimizer(optimizer):
    """One that derives from no optimizer of torch."""
    for cls in type(optimizer).__mro__:
        if cls is not object and cls is not torch.optim.Optimizer:
            wrap_steps(_watch, cls)
    _watch.process.trains()
    _watch.holds.ensure(optimizer)


def _tensors():
    """A forked child begins with none, as with all tables."""
    global _tracked, _tracked_in
    if _tracked is None or _tracked_in is not _watch.states:
        _tracked, _tracked_in = Tracked(_watch), _watch.states
    return _tracked


def install(watch):
    global _watch
    _watch = watch
