"""Counters of worse evaluations that a better one does not set back.

    if loss < self.best:
        self.best = loss
        self.weights = copy.deepcopy(model.state_dict())
    else:
        self.bad += 1
    return self.bad >= self.patience

Patience is with worse evaluations in a row: each better one begins it anew. A counter that
nothing sets back ends the training after so many worse evaluations altogether, however good
those in between are.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from _traincheck.frame_scopes import Scope
from _traincheck.metric_names import last_name
from _traincheck.metric_names import words_of
from _traincheck.running_extremes import branches
from _traincheck.running_extremes import extreme_of
from _traincheck.running_extremes import given_under
from _traincheck.sources import own_nodes
from _traincheck.standing_bests import are_never_so
from _traincheck.standing_bests import targets
from _traincheck.standing_bests import tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from _traincheck.awake import Awake
    from _traincheck.running_extremes import Branch

    _Key = tuple[str, int, str]  # file, line and name

NAME = "opt.patience_not_set_back"  # of the scalar

_KEEPS = 4  # of a variable, until it is said
_MOST = 32  # that are remembered
_PLAIN = (int, float)


class _Counted:
    """By an attribute of an object, or by a variable."""

    def __init__(self) -> None:
        self.owner = 0  # id of the object
        self.steps = 0  # at the last keep
        self.value: float | None = None  # of the attribute, then
        self.gap = 0  # steps from one evaluation to the next
        self.keeps = 0

    def goes_on(self, value: float, owner: int, steps: int) -> bool:
        """Has the counter been above 0 at this keep and the one before, with no worse
        evaluation in between? Who sets it back, wherever that is, has it at 0 then."""
        gap, before = steps - self.steps, self.value
        known = owner == self.owner and before is not None
        self.owner, self.steps, self.value = owner, steps, value
        if not known or value != before:
            return False
        if value == 0:
            self.gap = gap
        return value > 0 and gap == self.gap


class PatienceCounters:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._seen: dict[_Key, _Counted] = {}
        self._said: float | None = None

    def keeps(self, frame: FrameType, steps: int) -> bool:
        """Called with a frame in which something is kept, after so many steps. Is it
        kept for a new extreme?"""
        scope = Scope(frame)
        for branch in branches(scope):
            if extreme_of(branch, scope) is None:
                continue
            for counter in _counters(branch, scope):
                is_set_back = _is_set_back(counter, branch, scope)
                if is_set_back:
                    self._say(0.0)
                elif is_set_back is False:
                    self._look(counter, scope, steps)
            return True
        return False

    def optimizer_steps(self) -> float | None:
        """1: a better evaluation has not set back the counter of worse ones; 0: it has;
        None: nothing was kept since the last step, or nothing counts."""
        self._awake.discard(NAME)
        said, self._said = self._said, None
        return said

    def _look(self, counter: ast.expr, scope: Scope, steps: int) -> None:
        key = (scope.code.co_filename, scope.code.co_firstlineno, ast.unparse(counter))
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) == _MOST:
                return
            seen = self._seen[key] = _Counted()
        if steps == seen.steps:
            return
        if isinstance(counter, ast.Name):
            # The source alone is known.
            seen.steps = steps
            seen.keeps += 1
            if seen.keeps >= _KEEPS:
                self._say(1.0)
            return
        value = scope.known(counter)
        if type(value) in _PLAIN and seen.goes_on(value, id(scope.owner()), steps):
            self._say(1.0)

    def _say(self, value: float) -> None:
        self._said = max(self._said or 0.0, value)
        self._awake.add(NAME)


def _counters(branch: Branch, scope: Scope) -> Iterator[ast.expr]:
    """What the other branch counts up, and patience is compared with."""
    for node in own_nodes(branch.other):
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and isinstance(node.value, ast.Constant)
            and node.value.value == 1
            and isinstance(node.target, (ast.Name, ast.Attribute))
            and _is_patient(last_name(node.target), scope)
        ):
            yield node.target


def _is_patient(name: str, scope: Scope) -> bool:
    tree = tree_of(scope.code.co_filename)
    return tree is not None and any(
        isinstance(node, ast.Compare)
        and len(node.ops) == 1
        and any(
            last_name(one) == name and "patience" in words_of(ast.unparse(other))
            for one, other in (
                (node.left, node.comparators[0]),
                (node.comparators[0], node.left),
            )
        )
        for node in ast.walk(tree)
    )


def _is_set_back(counter: ast.expr, branch: Branch, scope: Scope) -> bool | None:
    """In this branch, or (False) nowhere. None: elsewhere, or nothing says."""
    name, around = last_name(counter), _around(counter, scope)
    if around is None:
        return None
    harmless: set[ast.AST] = set()
    found: set[ast.Name | ast.Attribute] = set()
    for node in ast.walk(around):
        if isinstance(node, ast.Call) and last_name(node.func) in ("setattr", "vars"):
            return None
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return None
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            harmless.add(node.target)
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            harmless.update(targets(node, name))
        elif isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name:
            if not isinstance(node.ctx, ast.Load):
                found.add(node)
    lines = {node.lineno for node in found if node not in harmless}
    lines -= {
        target.lineno
        for guards, target, _ in given_under(scope.body())
        if last_name(target) == name and are_never_so(guards, scope)
    }
    if not lines:
        return False
    body = branch.body
    inside = range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
    return True if any(line in inside for line in lines) else None


def _around(counter: ast.expr, scope: Scope) -> ast.AST | None:
    """All that may set it back: the file, or the outermost loop around a variable."""
    if isinstance(counter, ast.Attribute):
        return tree_of(scope.code.co_filename)
    loops = {
        node.lineno: node
        for node in own_nodes(scope.body())
        if isinstance(node, (ast.For, ast.While))
        and node.lineno <= counter.lineno <= (node.end_lineno or 0)
    }
    return loops[min(loops)] if loops else None
