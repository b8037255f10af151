"""Checkpointed regions, whose forward may run without gradients (reentrant)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.utils.checkpoint

from _traincheck.wrapping import wrap_function

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


class _Region:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> bool:
        return self._watch.clock.enter_checkpoint()

    def after(
        self,
        trains: bool,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if trains:
            self._watch.clock.leave_checkpoint()


def install(watch: Watch) -> None:
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
