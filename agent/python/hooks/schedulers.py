"""Learning rate schedulers: last_epoch and the rates that they set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.hyper_parameters import number_of
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


def _observe_steps(watch: Watch, cls: type[Any]) -> None:
    def stepped(scheduler: Any, args: Args, result: Any) -> None:
        scalars = {}
        epoch = number_of(getattr(scheduler, "last_epoch", None))
        if epoch is not None:
            scalars[("last_epoch", 0)] = epoch
        for group, rate in enumerate(getattr(scheduler, "_last_lr", ())):
            rate = number_of(rate)
            if rate is not None:
                scalars[("last_lr", group)] = rate
        core = watch.core
        watch.scalars.write(scheduler, core.OBJECT_OTHER, core.POINT_POST_STEP, scalars)

    observe(watch, cls, "step", after=stepped)


def install(watch: Watch) -> None:
    base = torch.optim.lr_scheduler.LRScheduler
    for cls in {base, *naming.subclasses(base)}:
        _observe_steps(watch, cls)

    def constructed(scheduler: Any, args: Args, kwargs: Kwargs) -> None:
        for cls in type(scheduler).__mro__:
            if cls is base:
                break
            _observe_steps(watch, cls)

    # Before: it steps within.
    observe(watch, base, "__init__", before=constructed)
