"""Calls of a scheduler's step that wait for a counter, found in the code that runs.

Some trainings hold their rate for a number of epochs and let it decay afterwards
(`if epoch >= hold: scheduler.step()`). Their scheduler has not been forgotten.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from _traincheck.sources import body_of, frames, is_of_user, own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_MOST = 16  # functions of the user's that are looked through
_NAMES = ("sched", "update_lr", "learning_rate")  # parts of them


def waits_for_a_counter(scheduler: Any) -> bool:
    """Does a function that runs now step it where a number has reached another one?"""
    of_user = [frame for frame in frames() if is_of_user(frame.f_code.co_filename)]
    return any(_steps_late(frame, scheduler) for frame in of_user[:_MOST])


def _steps_late(frame: FrameType, scheduler: Any) -> bool:
    return any(
        _is_step_of(call, frame, scheduler)
        for choice in own_nodes(body_of(frame.f_code))
        if isinstance(choice, ast.If) and _compares_order(choice.test)
        for call in _calls(choice)
    )


def _compares_order(test: ast.expr) -> bool:
    compared = (node for node in ast.walk(test) if isinstance(node, ast.Compare))
    return any(isinstance(op, _ORDERS) for node in compared for op in node.ops)


def _calls(choice: ast.If) -> Iterator[ast.Attribute]:
    """Methods that are called in one of its branches."""
    for node in own_nodes([*choice.body, *choice.orelse]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func


def _is_step_of(method: ast.Attribute, frame: FrameType, scheduler: Any) -> bool:
    """Also what its name says to be that of a scheduler kept elsewhere."""
    if method.attr != "step":
        return _is_about_rates(method.attr)
    owner = method.value
    if isinstance(owner, ast.Name):
        # Local names are not looked up: their values would be kept with the frame.
        known = frame.f_globals.get(owner.id)
        return known is scheduler or (known is None and _is_about_rates(owner.id))
    return isinstance(owner, ast.Attribute) and _is_about_rates(owner.attr)


def _is_about_rates(name: str) -> bool:
    return any(part in name.lower() for part in _NAMES)
