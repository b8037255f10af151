"""A best value that nobody moves: every evaluation is better than it.

    if accuracy > self.best_accuracy:
        torch.save(model.state_dict(), path)

writes over the best weights at each evaluation, for `best_accuracy` stays what it began
with. That nobody moves it is seen in the source, where statements that cannot run
(`if self.remember:`) do not count, and in its value at several evaluations. Only a value
that lets all others pass is asked: a number that somebody has chosen is a threshold.
"""

from __future__ import annotations

import ast
import functools
import linecache
from typing import TYPE_CHECKING

from _traincheck.frame_scopes import Scope
from _traincheck.frame_scopes import assignments
from _traincheck.metric_names import last_name
from _traincheck.metric_names import words_of
from _traincheck.running_extremes import branches
from _traincheck.running_extremes import comparisons
from _traincheck.running_extremes import given_under
from _traincheck.running_extremes import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from _traincheck.awake import Awake
    from _traincheck.running_extremes import Comparison
    from _traincheck.running_extremes import Guards

    _Key = tuple[str, int, str]  # file, line and name

NAME = "opt.best_stays"  # of the scalar

_KEEPS = 4  # until it is said
_MOST = 32  # that are remembered
_MOST_LINES = 20_000
_GREAT = 100.0  # a value that begins above this lets all others pass
_OTHERS = frozenset(
    "baseline batch count epoch epochs goal initial iter iteration known last old paper "
    "previous prior published ref reference required size sota step steps target teacher "
    "threshold".split()
)


class _Seen:
    def __init__(self, value: float) -> None:
        self.value = value
        self.owner = 0  # id of the object whose method keeps
        self.keeps = 0
        self.steps = -1  # at the last of these
        self.moves = False


class StandingBests:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._seen: dict[_Key, _Seen] = {}
        self._said: float | None = None

    def keeps(self, frame: FrameType, steps: int) -> bool:
        """Called with a frame in which something is kept, after so many steps. Is it
        kept for a best value?"""
        scope = Scope(frame)
        for branch in branches(scope):
            for compared in comparisons(branch.test, branch.holds, scope) or ():
                best = _best_of(compared)
                if best is None:
                    continue
                moved = _is_moved(best, scope)
                if moved:
                    self._say(0.0)
                elif moved is False:
                    self._look(best, compared.smaller is best, scope, steps)
                return True
        return False

    def optimizer_steps(self) -> float | None:
        """1: what is kept is better than a best value that stays what it was; 0: that is
        moved; None: nothing was kept for a best value since the last step."""
        self._awake.discard(NAME)
        said, self._said = self._said, None
        return said

    def _look(self, best: ast.expr, is_smaller: bool, scope: Scope, steps: int) -> None:
        value = scope.known(best)
        if type(value) not in (int, float) or not _lets_all_pass(value, is_smaller):
            return
        key = (scope.code.co_filename, scope.code.co_firstlineno, ast.unparse(best))
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) == _MOST:
                return
            seen = self._seen[key] = _Seen(value)
        owner = id(scope.owner())
        if owner != seen.owner:
            seen.owner, seen.keeps = owner, 0
        if value != seen.value:
            seen.moves = True  # from elsewhere
        elif steps != seen.steps:
            seen.steps = steps
            seen.keeps += 1
            if seen.keeps >= _KEEPS and not seen.moves:
                self._say(1.0)

    def _say(self, value: float) -> None:
        self._said = max(self._said or 0.0, value)
        self._awake.add(NAME)


def _best_of(compared: Comparison) -> ast.expr | None:
    """Of the two, if one is called so."""
    found = [side for side in compared if _is_best(side)]
    if len(found) != 1:
        return None
    other = compared.smaller if found[0] is compared.greater else compared.greater
    return None if isinstance(other, ast.Constant) else found[0]


def _is_best(side: ast.expr) -> bool:
    if not isinstance(side, (ast.Name, ast.Attribute)):
        return False
    words = words_of(last_name(side))
    return "best" in words and words.isdisjoint(_OTHERS)


def _lets_all_pass(value: float, is_smaller: bool) -> bool:
    if is_smaller:
        return value in (0, -1) or value <= -_GREAT
    return value >= _GREAT


def _is_moved(best: ast.expr, scope: Scope) -> bool | None:
    """May a statement of the file give it another value than the one it began with?
    None: nothing says."""
    name, path = last_name(best), scope.code.co_filename
    found = _givers(path, name)
    if found is None or _is_keyword(path, name):
        return None
    dead = {
        target.lineno
        for guards, target, _ in given_under(scope.body())
        if last_name(target) == name and are_never_so(guards, scope)
    }
    return not found <= dead


def are_never_so(guards: Guards, scope: Scope) -> bool:
    """Is one of the conditions not so, and of settings that nobody changes?"""
    path = scope.code.co_filename
    return any(
        not may_hold((guard,), scope)
        and not any(
            _givers(path, last_name(node)) != frozenset()
            for node in ast.walk(guard[0])
            if isinstance(node, (ast.Name, ast.Attribute))
        )
        for guard in guards
    )


@functools.lru_cache(maxsize=4)
def tree_of(path: str) -> ast.Module | None:
    lines = linecache.getlines(path)
    if not lines or len(lines) > _MOST_LINES:
        return None
    try:
        return ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None


@functools.lru_cache(maxsize=64)
def _givers(path: str, name: str) -> frozenset[int] | None:
    """Lines of the file that give something of this name a value, but for those that it
    begins with. None: not known."""
    tree = tree_of(path)
    if tree is None:
        return None
    begins = set(_beginnings(tree, name))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ("setattr", "vars"):
            return None
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            found.add(node.lineno)
        elif isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name:
            if not isinstance(node.ctx, ast.Load) and node not in begins:
                found.add(node.lineno)
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _is_keyword(path: str, name: str) -> bool:
    """Is something that is no number given by this name, as to dataclasses.replace?"""
    tree = tree_of(path)
    return tree is None or any(
        isinstance(node, ast.keyword)
        and node.arg == name
        and not _is_number(node.value)
        for node in ast.walk(tree)
    )


def _beginnings(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """Targets that get a number, and those of constructors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from targets(node, name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target, value in assignments(node):
                if last_name(target) == name and value and _is_number(value):
                    yield target


def targets(constructor: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(constructor):
        if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name:
            yield node


def _is_number(value: ast.expr) -> bool:
    """Written down: also as an infinity."""
    if isinstance(value, ast.UnaryOp):
        return _is_number(value.operand)
    if isinstance(value, ast.Call):
        return last_name(value.func) == "float" and all(map(_is_number, value.args))
    return isinstance(value, ast.Constant) or last_name(value) in ("inf", "infinity")
