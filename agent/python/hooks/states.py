"""Records of variables' content at state points."""

import torch


class States:
    def __init__(self, core, models, holds, recorded):
        self._core = core
        self._recorded = recorded
        self._models = models
        self._holds = holds
        # Has a gradient clear been recorded since the last optimizer step?
        # Before the first there is nothing to clear.
        self.clear_recorded = True

    def parts(self, point, parts, buffers=True):
        """Data of their parameters and, unless told otherwise, buffers.

        Whatever the step records; the callers at points of a step ask first.
        """
        if self._recorded.off:
            return
        variables, tensors = [], []
        for part in parts:
            part.collect_params(variables, tensors)
            if buffers:
                part.collect_buffers(variables, tensors)
        self.data(point, variables, tensors)

    def all_models(self, point):
        """As parts, of every model that no other thread trains."""
        if self._recorded.off:
            return
        variables, tensors = [], []
        for model in self._models.all():
            for part in model.own:
                if not part.claim.is_others():
                    part.collect_params(variables, tensors)
                    part.collect_buffers(variables, tensors)
        self.data(point, variables, tensors)

    def constructed(self, parts):
        """Called when their variables become known."""
        self.parts(self._core.POINT_CONSTRUCTION, parts)

    def constructed_loose(self, variables, tensors):
        self.data(self._core.POINT_CONSTRUCTION, variables, tensors)

    def step_ended(self):
        """Called when a step has closed: what this thread trains, and copies."""
        if not self._recorded.states:
            return
        variables, tensors = self._holds.loose_state()
        for model in self._models.all():
            for part in model.own:
                if part.claim.is_mine() or model.shadow_of:
                    part.collect_params(variables, tensors)
                    part.collect_buffers(variables, tensors)
        self.data(self._core.POINT_STEP_END, variables, tensors)

    def all_gradients(self, point):
        """Gradients of all parameters that this thread trains with, held or not."""
        if self._recorded.states:
            self.gradients(point, *self._mine())

    def cleared_by_hand(self):
        """Gradients that are gone without a zero_grad: p.grad = None."""
        if self.clear_recorded or not self._recorded.states:
            return
        # Reading an attribute must call no override of the user's.
        with torch._C.DisableTorchFunctionSubclass():
            gone = [
                pair
                for pair in zip(*self._mine())
                if pair[1].is_leaf and pair[1].grad is None
            ]
        if gone:
            self.gradients(self._core.POINT_GRAD_CLEAR, *map(list, zip(*gone)))

    def part_gradients(self, point, parts):
        if not self._recorded.states:
            return
        variables, tensors = [], []
        self._collect_mine(parts, variables, tensors)
        self.gradients(point, variables, tensors)

    def _mine(self):
        """(variables, tensors) of what this thread trains with."""
        variables, tensors = self._holds.loose_state()
        for model in self._models.all():
            self._collect_mine(model.own, variables, tensors)
        return variables, tensors

    def _collect_mine(self, parts, variables, tensors):
        for part in parts:
            if part.claim.is_mine():
                part.collect_params(variables, tensors)

    def data(self, point, variables, tensors):
        if variables and not self._recorded.off:
            self._core.record_states(point, self._core.STATE_DATA, variables, tensors)

    def gradients(self, point, variables, tensors):
        if variables:
            if point == self._core.POINT_GRAD_CLEAR:
                self.clear_recorded = True
            self._core.record_states(point, self._core.STATE_GRAD, variables, tensors)

    def both(self, point, variables, tensors):
        if variables:
            what = self._core.STATE_DATA | self._core.STATE_GRAD
            self._core.record_states(point, what, variables, tensors)
