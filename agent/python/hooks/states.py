"""Records of variables' content at state points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.plan import STATE_VALUES, state_points

if TYPE_CHECKING:
    from traincheck_core import Core

    from _traincheck.holds import Holds
    from _traincheck.models import Models
    from _traincheck.parts import Part
    from _traincheck.plan import Plan
    from _traincheck.planner import Planner
    from _traincheck.control import Recorded

    Loose = tuple[list[int], list[torch.Tensor]]  # variables and theirs


class States:
    def __init__(
        self,
        core: Core,
        models: Models,
        holds: Holds,
        recorded: Recorded,
        planner: Planner,
    ) -> None:
        self._core = core
        self._recorded = recorded
        self._planner = planner
        self._points = state_points(core)
        # What this plan asks for, by value and point: asked a dozen times a step.
        self._answers: dict[tuple[str, int], int] = {}
        self._answered: Plan | None = None
        data = core.STATE_DATA, core.STATE_DATA_STATISTICS, core.STATE_DATA_ROWS
        grad = core.STATE_GRAD, core.STATE_GRAD_STATISTICS, core.STATE_GRAD_ROWS
        self._bits = {
            value: grad if value.endswith(".grad") else data for value in STATE_VALUES
        }
        self._models = models
        self._holds = holds
        # Has a gradient clear been recorded since the last optimizer step?
        # Before the first there is nothing to clear.
        self.clear_recorded = True

    def asked(self, value: str, point: int) -> int:
        """What the plan asks for of "parameter.data" and the like, as record_states
        takes it; 0: nothing."""
        plan = self._planner.plan
        if plan is not self._answered:
            self._answers.clear()
            self._answered = plan
        answer = self._answers.get((value, point))
        if answer is None:
            answer = self._answers[value, point] = self._ask(plan, value, point)
        return answer

    def _ask(self, plan: Plan, value: str, point: int) -> int:
        place = self._points[point]
        if not plan.wants(value, place):
            return 0
        what, statistics, rows = self._bits[value]
        if place in plan.statistics.get(value, ()):
            what |= statistics
        if place in plan.rows.get(value, ()):
            what |= rows
        return what

    def parts(self, point: int, parts: list[Part], buffers: bool = True) -> None:
        """Data of their parameters and, unless told otherwise, buffers.

        Whatever the step records; the callers at points of a step ask first.
        """
        self._parts(point, parts, ([], []), buffers)

    def _parts(
        self, point: int, parts: list[Part], loose: Loose, buffers: bool = True
    ) -> None:
        """The same, with loose parameters."""
        if self._recorded.off:
            return
        of_params = self.asked("parameter.data", point)
        of_buffers = self.asked("buffer.data", point) if buffers else 0
        if not of_params and not of_buffers:
            return
        asked = {of_params: loose}
        asked.setdefault(of_buffers, ([], []))
        if of_params:
            self._core.collect_parameters(parts, *asked[of_params])
        if of_buffers:
            for part in parts:
                if part.buffers:  # most have none
                    part.collect_buffers(*asked[of_buffers])
        for what, found in asked.items():
            self._record(point, what, *found)

    def all_models(self, point: int) -> None:
        """As parts, of every model that no other thread trains."""
        parts = [
            part
            for model in self._models.all()
            for part in model.own
            if not part.claim.is_others()
        ]
        self.parts(point, parts)

    def constructed(self, parts: list[Part]) -> None:
        """Called when their variables become known."""
        self.parts(self._core.POINT_CONSTRUCTION, parts)

    def constructed_loose(
        self, variables: list[int], tensors: list[torch.Tensor]
    ) -> None:
        self.data(self._core.POINT_CONSTRUCTION, variables, tensors)

    def loaded(self, optimizer: torch.optim.Optimizer) -> None:
        """Called when what it holds was replaced, and that on purpose."""
        held = self._holds.ensure(optimizer)
        if self._recorded.states and held.complete:
            self.data(self._core.POINT_LOAD, *held.state(optimizer))

    def step_ended(self) -> None:
        """Called when a step has closed: what this thread trains, and copies."""
        point = self._core.POINT_STEP_END
        values = ("parameter.data", "buffer.data")
        if not self._recorded.states or not any(self.asked(v, point) for v in values):
            return
        parts = [
            part
            for model in self._models.all()
            for part in model.own
            if part.claim.is_mine() or model.shadow_of
        ]
        self._parts(point, parts, self._holds.loose_state())

    def all_gradients(self, point: int) -> None:
        """Gradients of all parameters that this thread trains with, held or not."""
        if self._recorded.states and self.asked("parameter.grad", point):
            self.gradients(point, *self._mine())

    def cleared_by_hand(self) -> None:
        """Gradients that are gone without a zero_grad: p.grad = None."""
        point = self._core.POINT_GRAD_CLEAR
        if self.clear_recorded or not self._recorded.states:
            return
        if not self.asked("parameter.grad", point):
            return
        # Reading an attribute must call no override of the user's.
        with torch._C.DisableTorchFunctionSubclass():
            gone = [
                pair
                for pair in zip(*self._mine())
                if pair[1].is_leaf and pair[1].grad is None
            ]
        if gone:
            self.gradients(
                point, [pair[0] for pair in gone], [pair[1] for pair in gone]
            )

    def part_gradients(self, point: int, parts: list[Part]) -> None:
        if not self._recorded.states:
            return
        variables: list[int] = []
        tensors: list[torch.Tensor] = []
        self._core.collect_parameters(parts, variables, tensors, True)
        self.gradients(point, variables, tensors)

    def _mine(self) -> tuple[list[int], list[torch.Tensor]]:
        """(variables, tensors) of what this thread trains with."""
        variables, tensors = self._holds.loose_state()
        for model in self._models.all():
            self._core.collect_parameters(model.own, variables, tensors, True)
        return variables, tensors

    def data(
        self, point: int, variables: list[int], tensors: list[torch.Tensor]
    ) -> None:
        """Of parameters."""
        self._record(point, self.asked("parameter.data", point), variables, tensors)

    def gradients(
        self, point: int, variables: list[int], tensors: list[torch.Tensor]
    ) -> None:
        if variables and point == self._core.POINT_GRAD_CLEAR:
            self.clear_recorded = True
        self._record(point, self.asked("parameter.grad", point), variables, tensors)

    def both(
        self, point: int, variables: list[int], tensors: list[torch.Tensor]
    ) -> None:
        what = self.asked("parameter.data", point) | self.asked("parameter.grad", point)
        self._record(point, what, variables, tensors)

    def _record(
        self, point: int, what: int, variables: list[int], tensors: list[torch.Tensor]
    ) -> None:
        if what and variables and not self._recorded.off:
            self._core.record_states(point, what, variables, tensors)
