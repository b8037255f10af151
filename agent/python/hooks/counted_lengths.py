"""Schedules whose length was counted in batches, and that are stepped once a pass over
the data.

A cosine of epochs * len(loader) steps that is stepped at the end of each epoch has hardly
moved when the training ends. What a length counts, the user's code says: the expression
that a scheduler is given is followed to the len() of a loader, through variables and
through parameters to the caller.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from _traincheck.frame_scopes import UNKNOWN, Scope, assignments, users_frame
from _traincheck.sources import is_of_user, own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Name of the scalar.
NAME = "schedule.counts_batches"

_TIMES = 2  # that it was stepped after a pass: one that joins late is so once
_LEAST_STEPS = 2  # of the optimizer before each
_DEPTH = 8  # of what is looked up
_DIVIDES = (ast.Div, ast.FloorDiv, ast.Mod)


class CountedLength:
    """Of one scheduler."""

    def __init__(self) -> None:
        self._counts_batches = False
        self._steps = 0  # of the optimizer, at the last look
        self._passes = 0
        self._times = 0
        self._found: bool | None = None

    def scheduler_steps(self, calls: int, steps: int, passes: int) -> None:
        """calls: of its step so far, with the constructor's; steps: those that its
        optimizer has made; passes: those over data to train with that have begun."""
        if calls == 1:
            self._counts_batches = _counts_batches_here()
        if not self._counts_batches or self._found is not None or steps == 0:
            return
        between, passed = steps - self._steps, passes - self._passes
        self._steps, self._passes = steps, passes
        if between < _LEAST_STEPS or passed < 1:
            self._found = False
            return
        self._times += 1
        if self._times == _TIMES:
            self._found = True

    def is_misread(self) -> bool | None:
        """Is it stepped once a pass? None: it does not count batches, or it is not known
        yet."""
        return self._found


def _counts_batches_here() -> bool:
    """Called within a scheduler's construction: was it given a number of batches?"""
    frame = users_frame(sys._getframe())
    while frame is not None and not is_of_user(frame.f_code.co_filename):
        frame = users_frame(frame.f_back)  # of a library that makes schedulers
    if frame is None:
        return False
    scope = Scope(frame)
    call = scope.running_call()
    if call is None:
        return False
    words = [word.value for word in call.keywords if word.arg != "optimizer"]
    return any(_counts_batches(one, scope) is True for one in [*call.args[1:], *words])


def _counts_batches(value: ast.AST, scope: Scope, depth: int = 0) -> bool | None:
    """None: it is divided by something that may be the batches of a pass."""
    if depth > _DEPTH or isinstance(value, ast.Lambda):
        return False
    if isinstance(value, ast.Call) and _name(value.func) == "len":
        return len(value.args) == 1 and _is_loader(value.args[0], scope)
    if isinstance(value, ast.BinOp) and isinstance(value.op, _DIVIDES):
        known = _accumulates(value.right)
        return _counts_batches(value.left, scope, depth + 1) if known else None
    found = [
        _counts_batches(part, where, depth + 1) for part, where in _parts(value, scope)
    ]
    return None if None in found else any(found)


def _parts(value: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """What a name was given, or else what an expression consists of."""
    if isinstance(value, ast.Name) and value.id in scope.parameters:
        given = scope.argument(value.id)
        if given is not None:
            yield given
    elif isinstance(value, (ast.Name, ast.Attribute)):
        target = ast.unparse(value)
        values = [
            one
            for node in own_nodes(scope.body())
            for where, one in assignments(node)
            if ast.unparse(where) == target
        ]
        if len(values) == 1 and values[0] is not None:
            yield values[0], scope
    else:
        yield from ((child, scope) for child in ast.iter_child_nodes(value))


def _is_loader(value: ast.expr, scope: Scope) -> bool:
    known = scope.known(value)
    if known is not UNKNOWN:
        return isinstance(known, DataLoader)
    return "loader" in ast.unparse(value).lower() or any(
        isinstance(given, ast.Call) and "loader" in _name(given.func).lower()
        for given, _ in _parts(value, scope)
    )


def _accumulates(divisor: ast.expr) -> bool:
    """Is it a number, or that of micro-batches?"""
    return isinstance(divisor, ast.Constant) or "accum" in _name(divisor).lower()


def _name(value: ast.AST) -> str:
    if isinstance(value, ast.Name):
        return value.id
    return value.attr if isinstance(value, ast.Attribute) else ""
