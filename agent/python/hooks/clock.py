"""Feeds the step rule (proto/step_rule.h) with the events that count.

Inside an optimizer's step (a closure) and inside a backward (recomputation)
forwards, fetches and gradient clears are parts of the step.
"""

import threading

import torch

_graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)


class _Depths(threading.local):
    steps = 0
    backwards = 0


def _nothing():
    pass


class Clock:
    def __init__(self, core):
        self._core = core
        self.closed = _nothing  # called when a step has closed
        self.reset()

    def reset(self):
        self._depths = _Depths()

    def inside_backward(self):
        # Engine threads have no backward call of their own, but a graph task.
        return self._depths.backwards > 0 or _graph_task() != -1

    def enter_step(self):
        self._depths.steps += 1

    def optimizer_steps(self, optimizer):
        if self._core.step_optimizer(optimizer):
            self.closed()

    def leave_step(self):
        self._depths.steps -= 1

    def enter_backward(self):
        """True for the outermost one."""
        self._depths.backwards += 1
        outermost = self._depths.backwards == 1 and _graph_task() == -1
        if outermost:
            self._core.step_backward()
        return outermost

    def leave_backward(self):
        self._depths.backwards -= 1

    def training_forward(self):
        if self._counts() and self._core.step_training_forward():
            self.closed()

    def batch_fetched(self):
        if self._counts() and self._core.step_batch_fetched():
            self.closed()

    def gradients_cleared(self):
        if self._counts() and self._core.step_grad_clear():
            self.closed()

    def end(self):
        if self._counts() and self._core.step_end():
            self.closed()

    def _counts(self):
        return self._depths.steps == 0 and not self.inside_backward()
