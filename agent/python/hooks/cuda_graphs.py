"""CUDA graphs: Python does not run when one is replayed.

A replay counts as what its capture was: its backwards and its optimizers' steps happen
again, but nobody sees them. What they did to gradients is not known, nor what the
losses were. One that was captured around an optimizer's step ends a step of the
training, as if the script had called traincheckd.step(), and state is recorded then.
"""

from __future__ import annotations

import collections
import weakref
from threading import get_ident
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


class _Captured:
    """What ran in a capture, and runs again in each replay."""

    def __init__(self) -> None:
        self.backwards = 0
        # In their order; an optimizer may step several times.
        self.steps: list[weakref.ref[torch.optim.Optimizer]] = []

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Of its steps; those that are gone are left out."""
        found = (reference() for reference in self.steps)
        return [optimizer for optimizer in found if optimizer is not None]


class CudaGraphs:
    """What was captured in the graphs that are alive, for those who count it."""

    def __init__(self) -> None:
        self._all: WeakIdentityMap[Any, _Captured] = WeakIdentityMap()
        self._open: dict[int, _Captured] = {}  # by the thread that captures

    def capture_begins(self, graph: Any) -> None:
        captured = self._open[get_ident()] = _Captured()
        self._all.set(graph, captured)

    def capture_ends(self) -> None:
        self._open.pop(get_ident(), None)

    def backward_begins(self) -> None:
        """Called at every outermost one."""
        if self._open and get_ident() in self._open:
            self._open[get_ident()].backwards += 1

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> None:
        """Called as its step begins."""
        if self._open and get_ident() in self._open:
            self._open[get_ident()].steps.append(weakref.ref(optimizer))

    def captured(self, graph: Any) -> _Captured | None:
        """None: nothing that counts."""
        found = self._all.get(graph)
        counts = found is not None and (found.backwards or found.steps)
        return found if counts else None


class _Replays:
    """Callbacks of one process."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def capture_began(self, graph: Any, args: Args, result: Any) -> None:
        self._watch.graphs.capture_begins(graph)

    def capture_ends(self, graph: Any, args: Args, kwargs: Kwargs) -> None:
        self._watch.graphs.capture_ends()

    def replayed(self, graph: Any, args: Args, result: Any) -> None:
        watch = self._watch
        watch.sight.limited_by("replays")
        captured = watch.graphs.captured(graph)
        # Within a step or a backward it is a part of that.
        within = watch.clock.inside_step() or watch.clock.inside_backward()
        if captured is None or within:
            return
        optimizers = captured.optimizers()
        watch.signs.replayed(captured.backwards, optimizers)
        if optimizers:
            self._stepped(optimizers)

    def _stepped(self, optimizers: list[torch.optim.Optimizer]) -> None:
        """optimizers: as they stepped, one after the other."""
        watch = self._watch
        times = collections.Counter(map(id, optimizers))
        for optimizer in {id(one): one for one in optimizers}.values():
            watch.clock.steps_are_replayed(times[id(optimizer)])
            self._record_state(optimizer)
        # Another optimizer's step belongs to the same step of the training.
        steps = max(times.values())
        watch.control.closes_at_once(steps)
        for _ in range(steps):
            watch.clock.user_step()
        watch.control.closes_at_once(1)

    def _record_state(self, optimizer: torch.optim.Optimizer) -> None:
        """What it keeps, as it is recorded behind its step; parameters are recorded as
        the step of the training ends."""
        watch = self._watch
        point = watch.core.POINT_POST_STEP
        what = watch.states.asked("optimizer_state.data", point)
        if not what or not watch.recorded.states:
            return
        held = watch.holds.complete(optimizer)
        if held.complete:
            held.optimizer_state.record(
                watch.core, point, what, held, optimizer, watch.models
            )


def install(watch: Watch) -> None:
    replays = _Replays(watch)
    cls = torch.cuda.CUDAGraph
    observe(watch, cls, "capture_begin", after=replays.capture_began)
    observe(watch, cls, "capture_end", before=replays.capture_ends)
    observe(watch, cls, "replay", after=replays.replayed)
