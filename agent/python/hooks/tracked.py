"""Tensors that the user asked to watch: in no model and no optimizer.

Their content is recorded when they become known and whenever a step closes.
They are kept alive until another one takes their name: a weak reference would
forbid torch to swap them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from _traincheck.watch import Watch

_MAX_TENSORS = 1024


class Tracked:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # name -> (variable, tensor, identity epoch)
        self._tensors: dict[str, tuple[int, torch.Tensor, int]] = {}
        self._listens = False

    def add(self, tensor: torch.Tensor, name: str) -> None:
        watch, core = self._watch, self._watch.core
        former = self._tensors.get(name)
        if former is None and len(self._tensors) >= _MAX_TENSORS:
            core.log_once("track", f"more than {_MAX_TENSORS} tensors to track")
            return
        epoch = 0
        if former is not None:
            epoch = former[2] + (former[1] is not tensor)
        kind = core.VARIABLE_BUFFER
        if isinstance(tensor, torch.nn.Parameter) or tensor.requires_grad:
            kind = core.VARIABLE_PARAMETER
        variable = core.define_variable(
            tensor, name, "tracked", 0, kind, "", core.storage_key(tensor), epoch
        )
        self._tensors[name] = (variable, tensor, epoch)
        watch.states.data(core.POINT_CONSTRUCTION, [variable], [tensor])
        self._listen()

    def remove(self, name: str) -> None:
        self._tensors.pop(name, None)

    def _listen(self) -> None:
        if self._listens:
            return
        self._listens = True
        clock, others = self._watch.clock, self._watch.clock.closed

        def closed() -> None:
            others()
            self._record()

        clock.closed = closed

    def _record(self) -> None:
        variables = [row[0] for row in self._tensors.values()]
        tensors = [row[1] for row in self._tensors.values()]
        self._watch.states.both(self._watch.core.POINT_STEP_END, variables, tensors)
