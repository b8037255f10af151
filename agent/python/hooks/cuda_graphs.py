"""CUDA graphs: Python does not run when one is replayed.

A graph that was captured around an optimizer's step makes a step each time that it is
replayed: the step ends with the replay, and state is recorded then, as if the script
had called traincheckd.step(). What runs inside a replay is not seen.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


class _Graphs:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # Optimizer steps of this thread before the capture that is in progress.
        self._begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._stepping: weakref.WeakSet[Any] = weakref.WeakSet()

    def begins(self, graph: Any, args: Args, kwargs: Kwargs) -> None:
        self._begun[graph] = self._watch.clock.steps_begun()

    def ended(self, graph: Any, args: Args, result: Any) -> None:
        begun = self._begun.pop(graph, None)
        if begun is not None and self._watch.clock.steps_begun() > begun:
            self._stepping.add(graph)

    def replayed(self, graph: Any, args: Args, result: Any) -> None:
        self._watch.sight.limited_by("replays")
        if graph in self._stepping:
            self._watch.clock.user_step()


def install(watch: Watch) -> None:
    graphs = _Graphs(watch)
    cls = torch.cuda.CUDAGraph
    observe(watch, cls, "capture_begin", before=graphs.begins)
    observe(watch, cls, "capture_end", after=graphs.ended)
    observe(watch, cls, "replay", after=graphs.replayed)
