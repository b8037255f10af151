"""Applies the capture plan to everything that is wrapped, now and later.

A call that no rule names and that is not of the skeleton is switched off at its
wrapper: it is not recorded at all.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from _traincheck import naming
from _traincheck import plan as plans

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from traincheck_core import Content, Core

    from _traincheck.plan import Plan
    from _traincheck.plan import Rule


class _Wrapped:
    """One wrapper, held weakly: classes of the user's may go."""

    __slots__ = ("wrapper", "names", "is_method", "detail", "tells", "on")

    def __init__(
        self,
        wrapper: Any,
        names: Sequence[str],
        is_method: bool,
        detail: bool,
        tells: bool,
    ) -> None:
        self.wrapper = weakref.ref(wrapper)
        self.names = names
        self.is_method = is_method
        self.detail = detail
        self.tells = tells
        self.on = True


class Planner:
    def __init__(self, core: Core, plan: Plan) -> None:
        self._core = core
        self._wrapped: list[_Wrapped] = []
        self._telling = False
        self.plan = plan
        # Full collection: what is beyond the skeleton is wrapped, all of it.
        self.everything = core.setting("TRAINCHECK_COLLECT") == "full"
        core.zoom_in_on(sorted(plan.zoomed))
        core.plan_forwards(self._forward)

    def wraps(self, names: Sequence[str]) -> bool:
        """Is it wrapped, if it is not of the skeleton?"""
        return self.everything or _names_more(self.plan.rule_for(names))

    def reaches_beyond(self) -> bool:
        """May anything be wrapped that is not of the skeleton?"""
        return self.everything or any(map(_names_more, self.plan.rules))

    def named(self) -> list[str]:
        """The qualified names in the plan, without patterns."""
        return [rule.function for rule in self.plan.rules if not rule.is_pattern()]

    def add(
        self,
        wrapper: Any,
        names: Sequence[str],
        is_method: bool = False,
        detail: bool = False,
        tells: bool = True,
    ) -> None:
        """names: the function's own, then its roles, narrow to general.

        detail: not of the skeleton. tells: its calls may tell content.
        """
        row = _Wrapped(wrapper, names, is_method, detail, tells)
        self._wrapped.append(row)
        if self.plan.rules:
            self._apply(row)
        elif detail:
            self._switch(row, wrapper, False)
        if self._telling and row.on:
            self._core.tell_switch(wrapper)

    def wants(self, names: Sequence[str]) -> bool:
        """Does a rule name it?"""
        return self.plan.rule_for(names) is not None

    def apply(self, plan: Plan) -> None:
        """From now on this plan holds."""
        self.plan = plan
        self._core.zoom_in_on(sorted(plan.zoomed))
        self._wrapped = [row for row in self._wrapped if row.wrapper() is not None]
        for row in self._wrapped:
            was_on = row.on
            self._apply(row)
            if self._telling and row.on != was_on:
                self._tell(row)
        self._core.plan_forwards(self._forward)

    def tell_all(self) -> None:
        """Records which functions are recorded, now and whenever that changes."""
        self._telling = True
        for row in self._wrapped:
            if row.on:
                self._tell(row)

    def tell_nothing(self) -> None:
        """Until tell_all: the process may be none that trains."""
        self._telling = False

    def _tell(self, row: _Wrapped) -> None:
        wrapper = row.wrapper()
        if wrapper is not None:
            self._core.tell_switch(wrapper)

    def _apply(self, row: _Wrapped) -> None:
        wrapper = row.wrapper()
        if wrapper is None:
            return
        if row.detail:
            self._switch(row, wrapper, self.wants(row.names))
        if row.tells:
            fn = wrapper.__wrapped__
            content = plans.content(self.plan, fn, row.names, row.is_method)
            self._core.set_content(wrapper, content)

    def _switch(self, row: _Wrapped, wrapper: Any, on: bool) -> None:
        row.on = on
        self._core.switch(wrapper, on)

    def _forward(self, cls: type[Any]) -> Content | None:
        """What forwards of a class tell; see agent/capture/module_call.h."""
        cls = naming.own_class(cls)
        names = [f"{naming.class_name(cls)}.forward", *naming.roles(cls, "forward")]
        # None where only instances have it (TorchScript).
        fn = getattr(cls, "forward", None)
        return plans.content(self.plan, fn, names, is_method=True)


def _names_more(rule: Rule | None) -> bool:
    """The rule that a full plan begins with is about what is wrapped anyway."""
    return rule is not None and rule not in plans.FULL.rules


def collects(core: Core) -> bool:
    """Is this run to be learned from?"""
    return core.setting("TRAINCHECK_COLLECT") in ("1", "full")


def first_plan(core: Core) -> Plan:
    """The plan of TRAINCHECK_PLAN, else the one for this kind of run.

    Raises PlanError.
    """
    path = core.setting("TRAINCHECK_PLAN")
    if path and core.setting("TRAINCHECK_CHECK") and not os.path.exists(path):
        core.log_once("plan", f"{path} is not there: the daemon sends the set's plan")
    elif path:
        return _read(path)
    return plans.FULL if collects(core) else plans.BARE


def _read(path: str) -> Plan:
    try:
        return plans.read(path)
    except plans.PlanError as error:
        raise plans.PlanError(
            f"TRAINCHECK_PLAN: {error}; name a JSON file as docs/capture-plan.md"
            " describes it"
        ) from None
