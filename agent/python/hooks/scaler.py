"""Steps that a GradScaler leaves out because a gradient is not finite."""

import functools
import types

import torch

from _traincheck.wrapping import quietly


def _observe(watch, cls):
    decide = cls.__dict__.get("_maybe_opt_step")
    if not isinstance(decide, types.FunctionType):
        return

    @functools.wraps(decide)
    def observed(self, optimizer, *args, **kwargs):
        before = watch.clock.steps_begun()
        try:
            result = decide(self, optimizer, *args, **kwargs)
        except BaseException as error:
            # As in observing.py: no frame of ours in tracebacks.
            error.__traceback__ = error.__traceback__.tb_next
            raise
        if watch.clock.steps_begun() == before:
            quietly(watch.core, _skipped, watch, optimizer)
        return result

    observed._torchdynamo_disable = True
    cls._maybe_opt_step = observed


def _skipped(watch, optimizer):
    watch.loaders.flush()
    held = watch.holds.ensure(optimizer)
    watch.clock.optimizer_skips(held.number)


def install(watch):
    # Both scalers of torch.cuda.amp and the sharded one inherit it. A step that
    # an optimizer itself leaves out (fused ones are told what was found) is
    # decided on the device and not seen here.
    _observe(watch, torch.amp.GradScaler)
