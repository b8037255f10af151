"""Checkpointed regions, whose forward may run without gradients (reentrant)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.autograd.graph
import torch.utils.checkpoint

from _traincheck.graph_nodes import tensors_are_packed
from _traincheck.observing import observe
from _traincheck.wrapping import wrap_function

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


class _Region:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before(self, args: Args, kwargs: Kwargs) -> tuple[bool, bytes | None]:
        trains = self._watch.clock.enter_checkpoint()
        if not trains or self._watch.clock.inside_backward():
            return trains, None
        return trains, self._watch.recomputation.region_begins(kwargs)

    def after(
        self,
        token: tuple[bool, bytes | None],
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        trains, state = token
        if trains:
            self._watch.clock.leave_checkpoint()
            if error is None and not self._watch.clock.inside_backward():
                function = args[0] if args else kwargs.get("function")
                self._watch.recomputation.region_ended(state, function, result)


def _packs(watch: Watch) -> None:
    tensors_are_packed()
    watch.sight.limited_by("packed")


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
    observe(
        watch,
        torch.autograd.graph.saved_tensors_hooks,
        "__enter__",
        before=lambda hooks, args, kwargs: _packs(watch),
    )
