"""Conditions that are asked of a function of the user's: `if self.better(value):`.

One that does nothing but give an answer stands for that answer, with what it is called
with in the places of its parameters.

    def better(self, value):
        if self.mode == "max":
            return value > self.best
        return value < self.best
"""

from __future__ import annotations

import ast
import copy
import types
from typing import TYPE_CHECKING

from _traincheck.frame_scopes import UNKNOWN
from _traincheck.frame_scopes import argument_of
from _traincheck.sources import body_of

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.frame_scopes import Scope

_STATEMENTS = 8  # one after the other, or within each other


def answer_of(call: ast.Call, scope: Scope) -> ast.expr | None:
    """The condition, as if it stood in the place of the call. None: the function is of
    another file, does more than to answer, or reads more than it is given."""
    function = _function_of(call.func, scope)
    if function is None or function.__code__.co_filename != scope.code.co_filename:
        return None
    code = function.__code__
    answer = _answer(body_of(code))
    if answer is None:
        return None
    count = code.co_argcount + code.co_kwonlyargcount
    parameters = list(code.co_varnames[:count])
    if isinstance(call.func, ast.Attribute) != (parameters[:1] == ["self"]):
        return None
    given: dict[str, ast.expr] = {}
    for node in ast.walk(answer):
        if isinstance(node, (ast.Lambda, ast.NamedExpr, ast.comprehension)):
            return None
        if isinstance(node, ast.Name) and node.id not in given:
            value = _given(node.id, call, parameters)
            if value is None:
                return None
            given[node.id] = value
    replaced: ast.expr = _Replacing(given).visit(copy.deepcopy(answer))
    # Of the line that asks.
    return ast.fix_missing_locations(ast.copy_location(replaced, call))


class _Replacing(ast.NodeTransformer):
    def __init__(self, given: dict[str, ast.expr]) -> None:
        self._given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._given[node.id])


def _function_of(called: ast.expr, scope: Scope) -> types.FunctionType | None:
    found: Any = None
    if isinstance(called, ast.Name):
        found = scope.known(called)
    elif isinstance(called, ast.Attribute):
        owner, name = scope.known(called.value), called.attr
        if owner is UNKNOWN or issubclass(type(owner), types.ModuleType):
            return None
        if scope.known(called) is not UNKNOWN:
            return None  # something that the object has itself
        classes = type(owner).__mro__
        found = next((vars(cls)[name] for cls in classes if name in vars(cls)), None)
    return found if type(found) is types.FunctionType else None


def _given(name: str, call: ast.Call, parameters: list[str]) -> ast.expr | None:
    if name not in parameters:
        return None
    if name == "self" and isinstance(call.func, ast.Attribute):
        return call.func.value
    return argument_of(call, parameters, name)


def _answer(body: list[ast.stmt], depth: int = 0) -> ast.expr | None:
    """Of the statements, as one expression."""
    if not body or depth > _STATEMENTS:
        return None
    first, rest = body[0], body[1:]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return _answer(rest, depth + 1)
    if isinstance(first, ast.Return):
        return first.value
    if not isinstance(first, ast.If):
        return None
    then = _answer([*first.body, *rest], depth + 1)
    other = _answer([*first.orelse, *rest], depth + 1)
    if then is None or other is None:
        return None
    # Both may be so later: `if self.best is None: return True`.
    if isinstance(then, ast.Constant) and then.value is True:
        return ast.BoolOp(ast.Or(), [first.test, other])
    if isinstance(then, ast.Constant) and then.value is False:
        return ast.BoolOp(ast.And(), [ast.UnaryOp(ast.Not(), first.test), other])
    return ast.IfExp(first.test, then, other)
