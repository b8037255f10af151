"""Checkpointed regions, whose forward may run without gradients (reentrant)."""

import torch.utils.checkpoint

from _traincheck.wrapping import wrap_function


class _Region:
    def __init__(self, watch):
        self._watch = watch

    def before(self, args, kwargs):
        return self._watch.clock.enter_checkpoint()

    def after(self, trains, args, kwargs, result, error):
        if trains:
            self._watch.clock.leave_checkpoint()


def install(watch):
    region = _Region(watch)
    wrap_function(
        watch,
        torch.utils.checkpoint,
        "checkpoint",
        "checkpoint",
        before=region.before,
        after=region.after,
        outermost_only=False,
    )
