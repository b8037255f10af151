"""What the agent says of its own sight (invariants/facts/sight.h): what it looks at,
what its plan asks for, and what escapes it.

Only then can a rule that has met no occasion be told from one for which nobody could
look.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from _traincheck import batch_tensors
from _traincheck import plan as plans
from _traincheck.holds import parameters_of
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

    from _traincheck.holds import Held
    from _traincheck.planner import Planner
    from _traincheck.watch import Watch

# Of the facts that the agent looks at itself: raised with each that is added to
# observed_facts.cc, whose row then says since when it is looked at.
LOOKS = 26

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Sight:
    def __init__(self, core: Core, planner: Planner, limits: set[str]) -> None:
        self._core = core
        self._planner = planner
        self._limits = limits

    def begins(self) -> None:
        """Called when the process turns out to train, and when the plan has changed."""
        self._say("looks", LOOKS)
        for what in self._planned():
            self._say(what)
        for limit in sorted(self._limits):  # of before, and of the parent
            self._say(f"limit {limit}")
        if self._planner.plan.mode == "off":
            self.limited_by("off")
        # From torch 2.5 on a node says what it is given.
        if not hasattr(torch._C._functions.AccumulateGrad, "_input_metadata"):
            self.limited_by("graphs")

    def limited_by(self, limit: str) -> None:
        """From now on something escapes the agent: a row of Limits in sight.cc."""
        if limit not in self._limits:
            self._limits.add(limit)
            self._say(f"limit {limit}")

    def optimizer_steps(self, optimizer: torch.optim.Optimizer, held: Held) -> None:
        """Called as its step begins."""
        if _frames_compiled():
            self.limited_by("compiled")
        if batch_tensors.were_on_a_device():
            self.limited_by("batches")
        for group in optimizer.param_groups:
            rate = group.get("lr")
            if type(rate) is torch.Tensor and not rate.is_cpu:
                self.limited_by("device rates")
        if held.looked_at != held.recordings:
            held.looked_at = held.recordings
            self._look_at(optimizer)

    def _look_at(self, optimizer: torch.optim.Optimizer) -> None:
        for parameter in parameters_of(optimizer):
            if type(parameter) not in _PLAIN:
                self.limited_by("classes")
            elif parameter.is_cuda or self._core.cpu_is_device():
                self.limited_by("device values")
            elif not parameter.is_cpu:
                self.limited_by("devices")

    def _planned(self) -> list[str]:
        plan, everything = self._planner.plan, self._planner.everything
        said = [
            f"calls {rule.function}"
            for rule in plan.rules
            # What a full plan begins with is of what is wrapped anyway.
            if everything or rule not in plans.FULL.rules
        ]
        points = plans.state_points(self._core).values()
        for value in sorted(plans.STATE_VALUES):
            said += [f"state {value} {at}" for at in points if plan.wants(value, at)]
        for kind, told in (("statistics", plan.statistics), ("rows", plan.rows)):
            said += [f"{kind} {value} {at}" for value in told for at in told[value]]
        return said + ["generators"] * plan.generators

    def _say(self, what: str, value: float = 1.0) -> None:
        core = self._core
        core.record_scalar(0, core.POINT_CONSTRUCTION, 0, f"sight:{what}", value)


def install(watch: Watch) -> None:
    observe(
        watch,
        torch.jit.RecursiveScriptModule,
        "__init__",
        before=lambda module, args, kwargs: watch.sight.limited_by("compiled"),
    )


def _frames_compiled() -> bool:
    """Has torch.compile looked at any frame of this process?"""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    frames: Any = None if counters is None else counters.get("frames")
    return bool(frames) and bool(frames["total"])
