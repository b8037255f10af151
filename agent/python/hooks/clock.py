"""Feeds the step rule (proto/step_rule.h) with the events that count.

Inside an optimizer's step (a closure) and inside a backward (recomputation)
forwards, fetches and gradient clears are parts of the step. Code trains where
gradients are enabled, and in a checkpointed region that was called with them;
a stage that the user named goes before both.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from traincheck_core import Core

_graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)


class _Thread(threading.local):
    steps = 0  # open
    begun = 0  # so far
    backwards = 0
    checkpoints = 0  # open, called with gradients enabled
    stage = 0  # as the user named it


def _nothing() -> None:
    pass


class Clock:
    def __init__(self, core: Core) -> None:
        self._core = core
        self.closed: Callable[[], None] = _nothing  # called when a step has closed
        self.reset()

    def reset(self) -> None:
        self._thread = _Thread()

    def inside_backward(self) -> bool:
        # Engine threads have no backward call of their own, but a graph task.
        return self._thread.backwards > 0 or _graph_task() != -1

    def trains(self) -> bool:
        """Does the code that runs now on this thread belong to training?"""
        thread = self._thread
        if thread.stage:
            return thread.stage == self._core.USER_STAGE_TRAINING
        return bool(torch.is_grad_enabled()) or thread.checkpoints > 0

    def enter_step(self) -> None:
        self._thread.steps += 1
        self._thread.begun += 1

    def inside_step(self) -> bool:
        return self._thread.steps > 0

    def steps_begun(self) -> int:
        """Of all optimizers, on this thread."""
        return self._thread.begun

    def steps_are_replayed(self, count: int) -> None:
        """An optimizer makes so many without being called."""
        self._thread.begun += count

    def optimizer_steps(self, optimizer: int) -> None:
        if self._core.step_optimizer(optimizer):
            self._tell()

    def optimizer_skips(self, optimizer: int) -> None:
        if self._core.step_optimizer(optimizer):
            self._tell()
        self._core.record_mark(
            self._core.MARK_STEP_SKIPPED, optimizer, self._core.SKIPPED_BY_SCALER
        )

    def others_step(self, optimizer: int) -> None:
        """Other ranks make a step of it, in which this one has no part."""
        if self._core.step_optimizer(optimizer):
            self._tell()
        core = self._core
        core.record_mark(
            core.MARK_STEP_SKIPPED, optimizer, core.SKIPPED_MADE_BY_OTHER_RANKS
        )

    def leave_step(self) -> None:
        self._thread.steps -= 1

    def enter_backward(self) -> bool:
        """True for the outermost one."""
        self._thread.backwards += 1
        outermost = self._thread.backwards == 1 and _graph_task() == -1
        if outermost:
            self._core.step_backward()
        return outermost

    def leave_backward(self) -> None:
        self._thread.backwards -= 1

    def enter_checkpoint(self) -> bool:
        """True if leave_checkpoint must follow."""
        trains: bool = torch.is_grad_enabled()
        self._thread.checkpoints += trains
        return trains

    def leave_checkpoint(self) -> None:
        self._thread.checkpoints -= 1

    def training_forward(self) -> None:
        if self._counts() and self._core.step_training_forward():
            self._tell()

    def batch_fetched(self, loader: int) -> None:
        if self.trains() and self._counts() and self._core.step_batch_fetched(loader):
            self._tell()

    def iterator_ended(self, loader: int) -> None:
        if self.trains() and self._counts() and self._core.step_iterator_end(loader):
            self._tell()

    def gradients_cleared(self) -> None:
        if self._counts() and self._core.step_grad_clear():
            self._tell()

    def group_destroyed(self) -> None:
        if self._counts() and self._core.step_end():
            self._tell()

    def process_ends(self) -> None:
        if self._core.step_exit():
            self._tell()

    def user_step(self) -> None:
        self._core.record_mark(self._core.MARK_USER_STEP, 0, 0)
        if self._core.step_user():
            self._tell()

    def user_stage(self) -> int:
        return self._thread.stage

    def name_stage(self, stage: int) -> None:
        if stage != self._thread.stage:
            self._thread.stage = stage
            self._record_stage()

    def _record_stage(self) -> None:
        stage = self._thread.stage
        self._core.record_mark(self._core.MARK_USER_STAGE, 0, stage)

    def _tell(self) -> None:
        """A step has closed."""
        # Whoever missed the name learns it here.
        if self._thread.stage:
            self._record_stage()
        self.closed()

    def _counts(self) -> bool:
        return self._thread.steps == 0 and not self.inside_backward()
