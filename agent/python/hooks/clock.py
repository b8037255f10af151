"""Feeds the step rule (proto/step_rule.h) with the events that count.

Inside an optimizer's step (a closure) and inside a backward (recomputation)
forwards, fetches and gradient clears are parts of the step. Code trains where
gradients are enabled, and in a checkpointed region that was called with them;
a stage that the user named goes before both.
"""

import threading

import torch

_graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)


class _Thread(threading.local):
    steps = 0  # open
    begun = 0  # so far
    backwards = 0
    checkpoints = 0  # open, called with gradients enabled
    stage = 0  # as the user named it


def _nothing():
    pass


class Clock:
    def __init__(self, core):
        self._core = core
        self.closed = _nothing  # called when a step has closed
        self.reset()

    def reset(self):
        self._thread = _Thread()

    def inside_backward(self):
        # Engine threads have no backward call of their own, but a graph task.
        return self._thread.backwards > 0 or _graph_task() != -1

    def trains(self):
        """Does the code that runs now on this thread belong to training?"""
        thread = self._thread
        if thread.stage:
            return thread.stage == self._core.USER_STAGE_TRAINING
        return torch.is_grad_enabled() or thread.checkpoints > 0

    def enter_step(self):
        self._thread.steps += 1
        self._thread.begun += 1

    def steps_begun(self):
        """Of all optimizers, on this thread."""
        return self._thread.begun

    def optimizer_steps(self, optimizer):
        self._tell(self._core.step_optimizer(optimizer))

    def optimizer_skips(self, optimizer):
        self._tell(self._core.step_optimizer(optimizer))
        self._core.record_mark(self._core.MARK_STEP_SKIPPED, optimizer, 0)

    def leave_step(self):
        self._thread.steps -= 1

    def enter_backward(self):
        """True for the outermost one."""
        self._thread.backwards += 1
        outermost = self._thread.backwards == 1 and _graph_task() == -1
        if outermost:
            self._core.step_backward()
        return outermost

    def leave_backward(self):
        self._thread.backwards -= 1

    def enter_checkpoint(self):
        """True if leave_checkpoint must follow."""
        trains = torch.is_grad_enabled()
        self._thread.checkpoints += trains
        return trains

    def leave_checkpoint(self):
        self._thread.checkpoints -= 1

    def training_forward(self):
        if self._counts():
            self._tell(self._core.step_training_forward())

    def batch_fetched(self, loader):
        if self.trains() and self._counts():
            self._tell(self._core.step_batch_fetched(loader))

    def iterator_ended(self, loader):
        if self.trains() and self._counts():
            self._tell(self._core.step_iterator_end(loader))

    def gradients_cleared(self):
        if self._counts():
            self._tell(self._core.step_grad_clear())

    def group_destroyed(self):
        if self._counts():
            self._tell(self._core.step_end())

    def process_ends(self):
        self._tell(self._core.step_exit())

    def user_step(self):
        self._core.record_mark(self._core.MARK_USER_STEP, 0, 0)
        self._tell(self._core.step_user())

    def user_stage(self):
        return self._thread.stage

    def name_stage(self, stage):
        if stage != self._thread.stage:
            self._thread.stage = stage
            self._record_stage()

    def _record_stage(self):
        stage = self._thread.stage
        self._core.record_mark(self._core.MARK_USER_STAGE, 0, stage)

    def _tell(self, closed):
        if not closed:
            return
        # Whoever missed the name learns it here.
        if self._thread.stage:
            self._record_stage()
        self.closed()

    def _counts(self):
        return self._thread.steps == 0 and not self.inside_backward()
