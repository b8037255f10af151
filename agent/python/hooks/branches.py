"""Statements of a function that its object's settings do not rule out.

    if self.fixed:
        scores.masked_fill_(hidden, -1e9)
    else:
        scores.masked_fill(hidden, -1e9)  # never runs where `fixed` is True
"""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.sources import Body

_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_MOST_NAMES = 256  # of an object


def statements_of(
    body: Body, owner: Any, but: tuple[type[ast.stmt], ...] = ()
) -> Iterator[ast.stmt]:
    """All but those of functions within it, those in branches that bools among the
    owner's attributes rule out, what follows a branch that is taken and leaves, and
    those within statements of the kinds `but`. owner: whose method it is, or None."""
    todo = [body]
    while todo:
        for statement in todo.pop():
            if isinstance(statement, (*but, *_NESTED)):
                continue
            yield statement
            if not isinstance(statement, ast.If):
                todo += _blocks(statement)
                continue
            taken = setting_of(statement.test, owner)
            if taken is None:
                todo += [statement.body, statement.orelse]
                continue
            block = statement.body if taken else statement.orelse
            todo.append(block)
            if block and isinstance(block[-1], _LEAVES):
                break


def settings_of(value: Any) -> types.SimpleNamespace:
    """An object with the bools of another one and of what its attributes hold: kept, it
    keeps nothing of the other alive."""
    kept = types.SimpleNamespace()
    for name, one in _attributes(value):
        inner = {key: flag for key, flag in _attributes(one) if type(flag) is bool}
        if type(one) is bool:
            setattr(kept, name, one)
        elif inner:
            setattr(kept, name, types.SimpleNamespace(**inner))
    return kept


def _blocks(statement: ast.stmt) -> list[Body]:
    names = ("body", "orelse", "finalbody")
    blocks: list[Body] = [getattr(statement, name, []) for name in names]
    for parts in ("handlers", "cases"):
        blocks += [part.body for part in getattr(statement, parts, [])]
    return blocks


def setting_of(test: ast.expr, owner: Any) -> bool | None:
    """Of `self.x` and `self.x.y`, if it is a bool; None: something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated = setting_of(test.operand, owner)
        return None if negated is None else not negated
    path: list[str] = []
    while isinstance(test, ast.Attribute):
        path.insert(0, test.attr)
        test = test.value
    if not path or not isinstance(test, ast.Name) or test.id != "self":
        return None
    value = owner
    for name in path:
        value = getattr(value, "__dict__", {}).get(name)
    # What a module is in now changes.
    return value if type(value) is bool and path != ["training"] else None


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """Some of them, by their names; none of what has no dictionary of its own."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return []
    # Those of classes and modules are no settings.
    if type(own) is not dict or len(own) > _MOST_NAMES:
        return []
    return [(name, one) for name, one in list(own.items()) if type(name) is str]
