"""Steps that a GradScaler leaves out because a gradient is not finite."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.watch import Watch


def _observe(watch: Watch, cls: type[Any]) -> None:
    decide: Any = cls.__dict__.get("_maybe_opt_step")
    if not isinstance(decide, types.FunctionType):
        return

    @functools.wraps(decide)
    def observed(
        self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        before = watch.clock.steps_begun()
        try:
            result = decide(self, optimizer, *args, **kwargs)
        except BaseException as error:
            # As in observing.py: no frame of ours in tracebacks.
            error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
            raise
        if watch.clock.steps_begun() == before:
            quietly(watch.core, _skipped, watch, optimizer)
        return result

    setattr(observed, "_torchdynamo_disable", True)
    setattr(cls, "_maybe_opt_step", observed)


def _skipped(watch: Watch, optimizer: torch.optim.Optimizer) -> None:
    watch.loaders.flush()
    held = watch.holds.ensure(optimizer)
    watch.clock.optimizer_skips(held.number)


def install(watch: Watch) -> None:
    # Both scalers of torch.cuda.amp and the sharded one inherit it. A step that
    # an optimizer itself leaves out (fused ones are told what was found) is
    # decided on the device and not seen here.
    _observe(watch, torch.amp.GradScaler)
