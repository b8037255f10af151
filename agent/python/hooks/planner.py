"""Applies the capture plan to everything that is wrapped, now and later."""

import os
import weakref

from _traincheck import naming
from _traincheck import plan as plans


class _Wrapped:
    """One wrapper, held weakly: classes of the user's may go."""

    __slots__ = ("wrapper", "names", "is_method")

    def __init__(self, wrapper, names, is_method):
        self.wrapper = weakref.ref(wrapper)
        self.names = names
        self.is_method = is_method


class Planner:
    def __init__(self, core, plan):
        self._core = core
        self._wrapped = []
        self.plan = plan
        core.plan_forwards(self._forward)

    def add(self, wrapper, names, is_method=False):
        """names: the function's own, then its roles, narrow to general."""
        row = _Wrapped(wrapper, names, is_method)
        self._wrapped.append(row)
        if self.plan.rules:
            self._apply(row)

    def apply(self, plan):
        """From now on this plan holds."""
        self.plan = plan
        self._wrapped = [row for row in self._wrapped if row.wrapper() is not None]
        for row in self._wrapped:
            self._apply(row)
        self._core.plan_forwards(self._forward)

    def _apply(self, row):
        wrapper = row.wrapper()
        if wrapper is not None:
            fn = wrapper.__wrapped__
            content = plans.content(self.plan, fn, row.names, row.is_method)
            self._core.set_content(wrapper, content)

    def _forward(self, cls):
        """What forwards of a class tell; see agent/capture/module_call.h."""
        names = [f"{naming.class_name(cls)}.forward", *naming.roles(cls, "forward")]
        # None where only instances have it (TorchScript).
        fn = getattr(cls, "forward", None)
        return plans.content(self.plan, fn, names, is_method=True)


def first_plan():
    """The plan of TRAINCHECK_PLAN, else the one for this kind of run.

    Raises PlanError.
    """
    path = os.environ.get("TRAINCHECK_PLAN")
    if path:
        return plans.read(path)
    collects = os.environ.get("TRAINCHECK_COLLECT") in ("1", "full")
    return plans.FULL if collects else plans.BARE
