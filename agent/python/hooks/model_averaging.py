"""Averages of whole models (local SGD), by torch's averagers.

Ranks whose models are averaged every few steps train apart in between: past their
wrapper, or through one whose gradients are reduced within a node only. Nothing that a
wrapper held is a replica any more.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from _traincheck.imports import Imports
from _traincheck.observing import observe

if TYPE_CHECKING:
    import types
    from typing import Any

    from traincheck_core import Args

    from _traincheck.watch import Watch

# Where the base class of all averagers is.
_MODULE = "torch.distributed.algorithms.model_averaging.averagers"


def install(watch: Watch) -> None:
    def constructed(averager: Any, args: Args, result: Any) -> None:
        watch.topology.models_are_averaged()
        watch.wrapped_models.models_are_averaged()
        watch.past_wrappers.models_are_averaged()
        for cls in type(averager).__mro__:
            observe(watch, cls, "average_parameters", after=averaged)

    def averaged(averager: Any, args: Args, result: Any) -> None:
        if _has_averaged(averager):
            for optimizer in watch.holds.optimizers():
                watch.states.loaded(optimizer)

    def imported(module: types.ModuleType) -> None:
        observe(watch, module.ModelAverager, "__init__", after=constructed)

    if _MODULE in sys.modules:
        imported(sys.modules[_MODULE])
    else:
        Imports(watch.core, {_MODULE}, imported).install()


def _has_averaged(averager: Any) -> bool:
    """In the call that has just ended and moved its count on? Where nothing tells, it
    may have."""
    since = averager.step - 1 - getattr(averager, "warmup_steps", 0)
    return bool(since >= 0 and since % getattr(averager, "period", 1) == 0)
