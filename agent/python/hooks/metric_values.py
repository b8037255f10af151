"""Which way a value gets better, by the names in the expression that gives it."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING

from _traincheck.metric_names import direction_of_name
from _traincheck.metric_names import last_name
from _traincheck.running_extremes import given_under
from _traincheck.sources import own_nodes
from _traincheck.standing_bests import are_never_so

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.frame_scopes import Scope

_DEPTH = 10
# Functions and methods whose result gets better as what they are given does.
_NEUTRAL = frozenset(
    "array asarray average avg compute cpu detach double exp float item log mean median "
    "nanmean numpy result round sqrt squeeze sum tensor to tolist".split()
)


def direction(value: ast.expr | None, scope: Scope, depth: int = 0) -> int | None:
    """As of names. None: it may have been turned around."""
    if value is None or depth > _DEPTH:
        return None
    if isinstance(value, ast.Constant):
        return 0
    if isinstance(value, ast.Name):
        return _of_variable(value.id, scope, depth)
    if isinstance(value, ast.Attribute):
        return direction_of_name(value.attr) or direction_of_name(
            last_name(value.value)
        )
    if isinstance(value, ast.Subscript):
        return _of_entry(value, scope, depth)
    if isinstance(value, ast.Call):
        return _of_call(value, scope, depth)
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        return _turned(direction(value.operand, scope, depth + 1))
    if isinstance(value, ast.BinOp):
        return _of_operation(value, scope, depth)
    if isinstance(value, ast.IfExp):
        body = direction(value.body, scope, depth + 1)
        return _agreed(body, direction(value.orelse, scope, depth + 1))
    return None


def _turned(found: int | None) -> int | None:
    return -found if found else None


def _agreed(one: int | None, other: int | None) -> int | None:
    if one is None or other is None or one * other < 0:
        return None
    return one or other


def _of_entry(entry: ast.Subscript, scope: Scope, depth: int) -> int | None:
    key = scope.known(entry.slice)
    found = direction_of_name(key) if type(key) is str else 0
    found = found or direction_of_name(last_name(entry.value))
    if found or type(key) is not int or not isinstance(entry.value, ast.Name):
        return found
    return _of_list(entry.value.id, scope, depth)


def _of_list(name: str, scope: Scope, depth: int) -> int | None:
    """Of a list that begins empty, and that values are appended to one by one."""
    begins = scope.assigned(name)
    if not begins or not all(isinstance(b, ast.List) and not b.elts for b in begins):
        return 0
    found: list[int | None] = []
    for node in own_nodes(scope.body()):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        changed = node.func.value
        if isinstance(changed, ast.Name) and changed.id == name:
            if node.func.attr != "append" or len(node.args) != 1:
                return 0
            found.append(direction(node.args[0], scope, depth + 1))
    return found[0] if found and len(set(found)) == 1 else 0


def _given(name: str, scope: Scope) -> list[ast.expr | None]:
    """What a name of the function's is given, without what stands in branches that a
    setting excludes which nothing changes."""
    under = list(given_under(scope.body()))
    changed = {last_name(target) for _, target, _ in under}
    excluded = set()
    for guards, target, value in under:
        if value is None or last_name(target) != name:
            continue
        # A flag that is turned around here may have been another one then.
        settings = tuple(one for one in guards if changed.isdisjoint(_names(one[0])))
        if are_never_so(settings, scope):
            excluded.add(id(value))
    return [value for value in scope.assigned(name) if id(value) not in excluded]


def _names(test: ast.expr) -> set[str]:
    nodes = ast.walk(test)
    return {last_name(n) for n in nodes if isinstance(n, (ast.Name, ast.Attribute))}


def _of_variable(name: str, scope: Scope, depth: int) -> int | None:
    values = _given(name, scope)
    if name in scope.parameters:
        # Who calls knows what it is; the name of a parameter may be that of another use.
        given = None if values else scope.argument(name)
        return None if given is None else direction(given[0], given[1], depth + 1)
    found: int | None = direction_of_name(name)
    for value in values:
        if value is not None and _changes(value, name):
            found = found if _is_scaled(value, name) else None
        else:
            found = _agreed(found, direction(value, scope, depth + 1))
    return found


def _changes(value: ast.expr, name: str) -> bool:
    """Is the variable given what it has been, in another form?"""
    nodes = ast.walk(value)
    return any(isinstance(node, ast.Name) and node.id == name for node in nodes)


def _is_scaled(value: ast.expr, name: str) -> bool:
    """`loss / count`, `loss.item()`, `loss + other`: it may not be turned around."""
    while True:
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Div)):
            value = value.left
        elif isinstance(value, ast.Call) and last_name(value.func) in _NEUTRAL:
            if value.args:
                value = value.args[0]
            elif isinstance(value.func, ast.Attribute):
                value = value.func.value
            else:
                return False
        else:
            return isinstance(value, ast.Name) and value.id == name


def _of_call(call: ast.Call, scope: Scope, depth: int) -> int | None:
    called = call.func
    name = last_name(called)
    if name == "get" and call.args:
        key = scope.known(call.args[0])
        return direction_of_name(key) if type(key) is str else 0
    if name not in _NEUTRAL:
        return direction_of_name(name)
    if isinstance(called, ast.Attribute):
        owner: Any = scope.known(called.value)
        if not isinstance(owner, types.ModuleType):
            return direction(called.value, scope, depth + 1)
    return direction(call.args[0], scope, depth + 1) if call.args else 0


def _of_operation(value: ast.BinOp, scope: Scope, depth: int) -> int | None:
    left = direction(value.left, scope, depth + 1)
    right = direction(value.right, scope, depth + 1)
    if isinstance(value.op, ast.Add):
        for one, other in ((value.left, right), (value.right, left)):
            if isinstance(one, ast.Constant):
                return other
        return _agreed(left, right) if left and right else None
    if isinstance(value.op, ast.Sub):
        if isinstance(value.right, ast.Constant):
            return left
        if isinstance(value.left, ast.Constant):
            return _turned(right)
        return _agreed(left, _turned(right)) if left and right else None
    if isinstance(value.op, ast.Mult):
        for one, other in ((value.left, right), (value.right, left)):
            factor = scope.known(one)
            if type(factor) in (int, float) and factor:
                return other if factor > 0 else _turned(other)
        return None
    if isinstance(value.op, (ast.Div, ast.Pow)):
        # By a number of things.
        return left if right == 0 else None
    return None
