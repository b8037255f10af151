"""Conditions under which a statement runs: those that ask for a new extreme.

    if value > self.best:
        self.best = value
        keep(model)

keeps the greatest value, whatever the names are: what is compared with is given the
value. Conditions that are known already (`if self.mode == "min"`) choose among others.
"""

from __future__ import annotations

import ast
from typing import NamedTuple
from typing import TYPE_CHECKING

from _traincheck.asked_methods import answer_of
from _traincheck.frame_scopes import UNKNOWN
from _traincheck.frame_scopes import assignments
from _traincheck.metric_names import last_name
from _traincheck.metric_names import words_of
from _traincheck.sources import own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.frame_scopes import Scope

    # Conditions, and whether each of them holds.
    Guards = tuple[tuple[ast.expr, bool], ...]

_DEPTH = 8
# What is kept is not meant to be the best, or what is compared with no extreme.
_ADVERSE = frozenset(
    "adversarial adversary attack hard hardest worst last old prev previous".split()
)
_UPPER = frozenset("ceiling highest largest max maximum peak upper".split())
_LOWER = frozenset("floor lowest lower min minimum smallest".split())
_GREATER = frozenset(("greater", "greater_equal", "gt", "ge"))
_LESS = frozenset(("less", "less_equal", "lt", "le"))
_STRIPPED = frozenset(("item", "detach", "cpu", "clone"))


class Branch(NamedTuple):
    """Of a statement `if`, the one that runs now."""

    test: ast.expr
    holds: bool
    body: list[ast.stmt]
    other: list[ast.stmt]


class Comparison(NamedTuple):
    greater: ast.expr
    smaller: ast.expr


class Extreme(NamedTuple):
    greatest: bool
    value: ast.expr
    line: int  # of the condition


def branches(scope: Scope) -> Iterator[Branch]:
    """Around the line that runs, the innermost first."""
    found = []
    for node in own_nodes(scope.body()):
        if isinstance(node, ast.If):
            for holds, body, other in (
                (True, node.body, node.orelse),
                (False, node.orelse, node.body),
            ):
                if body and body[0].lineno <= scope.line <= (body[-1].end_lineno or 0):
                    found.append(Branch(node.test, holds, body, other))
                    break
    found.sort(key=lambda branch: -branch.test.lineno)
    yield from found


def extreme_of(branch: Branch, scope: Scope) -> Extreme | None:
    """None: the condition asks for none, or not clearly for one."""
    given = list(_given(branch.body))
    if any(words_of(last_name(target)) & _ADVERSE for target, _ in given):
        return None
    kept = {(_dump(t), _dump(v), way) for t, v in given if v for way in (True, False)}
    kept.update(_chosen(scope))
    found = {}
    for comparison in comparisons(branch.test, branch.holds, scope) or ():
        terms = _terms(comparison.greater, 1, scope)
        terms += _terms(comparison.smaller, -1, scope)
        for operand, sign in terms:
            for value, other_sign in terms:
                greatest = other_sign > 0
                if other_sign == sign:
                    continue
                if (_dump(operand), _dump(value), greatest) not in kept:
                    continue
                if not _is_clear(operand, greatest, branch.other):
                    return None
                found[greatest] = Extreme(greatest, value, branch.test.lineno)
    return next(iter(found.values())) if len(found) == 1 else None


def _given(body: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    for node in own_nodes(body):
        yield from assignments(node)


def _chosen(scope: Scope) -> Iterator[tuple[str, str, bool]]:
    """Of `best = max(best, value)`, which may stand beside the condition: what is given,
    the value, and whether the greatest is chosen."""
    for target, value in _given(scope.body()):
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            if value.func.id in ("max", "min") and len(value.args) == 2:
                kept = _dump(target)
                for one, other in (value.args, value.args[::-1]):
                    if _dump(one) == kept:
                        yield kept, _dump(other), value.func.id == "max"


def _is_clear(operand: ast.expr, greatest: bool, other: list[ast.stmt]) -> bool:
    """Where both branches store the value, it is the latest one."""
    words = words_of(last_name(operand))
    if words & (_ADVERSE | (_UPPER if greatest else _LOWER)):
        return False
    kept = _dump(operand)
    return not any(
        _dump(target) == kept
        for statement in other
        if not isinstance(statement, ast.If)
        for target, _ in _given([statement])
    )


def comparisons(
    test: ast.expr, holds: bool, scope: Scope, depth: int = 0
) -> list[Comparison] | None:
    """That may hold where the test does (or does not). None: it cannot be so."""
    if depth > _DEPTH:
        return []
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return comparisons(test.operand, not holds, scope, depth + 1)
    if isinstance(test, ast.BoolOp):
        return _of_several(test, holds, scope, depth)
    if isinstance(test, ast.IfExp):
        chosen = scope.known(test.test)
        both = [test.body, test.orelse]
        if chosen is not UNKNOWN:
            both = [test.body if chosen else test.orelse]
        return _together([comparisons(one, holds, scope, depth + 1) for one in both])
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(test.ops[0], (ast.Gt, ast.GtE)):
            return [Comparison(left, right) if holds else Comparison(right, left)]
        if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
            return [Comparison(right, left) if holds else Comparison(left, right)]
    if isinstance(test, ast.Call):
        found = _of_call(test, holds, scope) if len(test.args) == 2 else []
        answer = None if found else answer_of(test, scope)
        return comparisons(answer, holds, scope, depth + 1) if answer else found
    if isinstance(test, ast.Name):
        return _of_flag(test.id, holds, scope, depth)
    known = scope.known(test)
    return None if known is not UNKNOWN and bool(known) != holds else []


def _together(found: list[list[Comparison] | None]) -> list[Comparison] | None:
    """Of alternatives."""
    possible = [one for one in found if one is not None]
    return [one for some in possible for one in some] if possible else None


def _of_several(
    test: ast.BoolOp, holds: bool, scope: Scope, depth: int
) -> list[Comparison] | None:
    found = [comparisons(one, holds, scope, depth + 1) for one in test.values]
    all_hold = isinstance(test.op, ast.And) == holds
    if all_hold and None in found:
        return None
    return _together(found)


def _of_call(call: ast.Call, holds: bool, scope: Scope) -> list[Comparison]:
    """Of operator.lt, np.greater, torch.lt and the like, which objects hold."""
    function = scope.known(call.func)
    name = "" if function is UNKNOWN else str(getattr(function, "__name__", ""))
    left, right = call.args
    if name in _GREATER or name in _LESS:
        first = (name in _GREATER) == holds
        return [Comparison(left, right) if first else Comparison(right, left)]
    return []


def _of_flag(
    name: str, holds: bool, scope: Scope, depth: int
) -> list[Comparison] | None:
    """Of a variable that was given a condition, in the branch that was run."""
    found = []
    for guards, target, value in given_under(scope.body()):
        if not isinstance(target, ast.Name) or target.id != name:
            continue
        if not isinstance(value, ast.Constant) and may_hold(guards, scope, depth):
            found.append(value)
    if len(found) != 1 or found[0] is None:
        return []
    return comparisons(found[0], holds, scope, depth + 1)


def may_hold(guards: Guards, scope: Scope, depth: int = 0) -> bool:
    return all(
        comparisons(test, holds, scope, depth + 1) is not None for test, holds in guards
    )


def given_under(
    body: list[ast.stmt], guards: Guards = ()
) -> Iterator[tuple[Guards, ast.expr, ast.expr | None]]:
    """What statements of a function give a value, and the conditions around each."""
    for node in body:
        if isinstance(node, ast.If):
            yield from given_under(node.body, (*guards, (node.test, True)))
            yield from given_under(node.orelse, (*guards, (node.test, False)))
        elif isinstance(node, (ast.For, ast.While, ast.With, ast.Try)):
            inner = [*node.body, *getattr(node, "orelse", ())]
            yield from given_under(inner, guards)
            yield from given_under(getattr(node, "finalbody", []), guards)
        else:
            for target, value in assignments(node):
                yield guards, target, value


def _terms(value: ast.expr, sign: int, scope: Scope) -> list[tuple[ast.expr, int]]:
    """What is added up, without positive factors."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return _terms(value.operand, -sign, scope)
    if isinstance(value, ast.BinOp):
        left, right = value.left, value.right
        if isinstance(value.op, (ast.Add, ast.Sub)):
            other = sign if isinstance(value.op, ast.Add) else -sign
            return [*_terms(left, sign, scope), *_terms(right, other, scope)]
        if isinstance(value.op, ast.Mult):
            for factor, rest in ((left, right), (right, left)):
                number = scope.known(factor)
                if type(number) in (int, float) and number > 0:
                    return _terms(rest, sign, scope)
    return [(value, sign)]


def _dump(value: ast.expr) -> str:
    """Alike for what is written and what is read, and for a tensor and its number."""
    while isinstance(value, ast.Call):
        called = value.func
        if isinstance(called, ast.Attribute) and called.attr in _STRIPPED:
            value = called.value
        elif isinstance(called, ast.Name) and called.id == "float" and value.args:
            value = value.args[0]
        else:
            break
    return ast.unparse(value)
