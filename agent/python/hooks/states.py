"""Records of variables' content at state points."""

import torch


class States:
    def __init__(self, core, models, holds, recorded, planner):
        self._core = core
        self._recorded = recorded
        self._planner = planner
        # Names of the points, as plans have them.
        self._points = {
            getattr(core, name): name[len("POINT_") :].lower()
            for name in dir(core)
            if name.startswith("POINT_")
        }
        self._models = models
        self._holds = holds
        # Has a gradient clear been recorded since the last optimizer step?
        # Before the first there is nothing to clear.
        self.clear_recorded = True

    def wants(self, value, point):
        """Does the plan ask for it? value: "parameter.data" and the like."""
        return self._planner.plan.wants(value, self._points[point])

    def parts(self, point, parts, buffers=True):
        """Data of their parameters and, unless told otherwise, buffers.

        Whatever the step records; the callers at points of a step ask first.
        """
        self._parts(point, parts, ([], []), buffers)

    def _parts(self, point, parts, loose, buffers=True):
        """The same, with loose parameters."""
        if self._recorded.off:
            return
        params = self.wants("parameter.data", point)
        buffers = buffers and self.wants("buffer.data", point)
        variables, tensors = loose if params else ([], [])
        for part in parts:
            if params:
                part.collect_params(variables, tensors)
            if buffers:
                part.collect_buffers(variables, tensors)
        self._record(point, self._core.STATE_DATA, variables, tensors)

    def all_models(self, point):
        """As parts, of every model that no other thread trains."""
        parts = [
            part
            for model in self._models.all()
            for part in model.own
            if not part.claim.is_others()
        ]
        self.parts(point, parts)

    def constructed(self, parts):
        """Called when their variables become known."""
        self.parts(self._core.POINT_CONSTRUCTION, parts)

    def constructed_loose(self, variables, tensors):
        self.data(self._core.POINT_CONSTRUCTION, variables, tensors)

    def step_ended(self):
        """Called when a step has closed: what this thread trains, and copies."""
        if not self._recorded.states:
            return
        parts = [
            part
            for model in self._models.all()
            for part in model.own
            if part.claim.is_mine() or model.shadow_of
        ]
        self._parts(self._core.POINT_STEP_END, parts, self._holds.loose_state())

    def all_gradients(self, point):
        """Gradients of all parameters that this thread trains with, held or not."""
        if self._recorded.states and self.wants("parameter.grad", point):
            self.gradients(point, *self._mine())

    def cleared_by_hand(self):
        """Gradients that are gone without a zero_grad: p.grad = None."""
        point = self._core.POINT_GRAD_CLEAR
        if self.clear_recorded or not self._recorded.states:
            return
        if not self.wants("parameter.grad", point):
            return
        # Reading an attribute must call no override of the user's.
        with torch._C.DisableTorchFunctionSubclass():
            gone = [
                pair
                for pair in zip(*self._mine())
                if pair[1].is_leaf and pair[1].grad is None
            ]
        if gone:
            self.gradients(point, *map(list, zip(*gone)))

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
        """Of parameters."""
        if self.wants("parameter.data", point):
            self._record(point, self._core.STATE_DATA, variables, tensors)

    def gradients(self, point, variables, tensors):
        if variables and point == self._core.POINT_GRAD_CLEAR:
            self.clear_recorded = True
        if self.wants("parameter.grad", point):
            self._record(point, self._core.STATE_GRAD, variables, tensors)

    def both(self, point, variables, tensors):
        what = 0
        if self.wants("parameter.data", point):
            what |= self._core.STATE_DATA
        if self.wants("parameter.grad", point):
            what |= self._core.STATE_GRAD
        if what:
            self._record(point, what, variables, tensors)

    def _record(self, point, what, variables, tensors):
        if variables and not self._recorded.off:
            self._core.record_states(point, what, variables, tensors)
