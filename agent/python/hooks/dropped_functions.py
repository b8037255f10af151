"""Functions of autograd whose result a statement drops.

    AddsLoss.apply(weights, loss)            # weights = AddsLoss.apply(weights, loss)

Such a function hangs something onto what it returns. If its forward only computes, a
statement that drops the result does nothing: no gradient comes by. Functions that
write, send or count in their forwards are left alone, and statements within `try`,
`with` and `while`: those try a function out. A branch that a setting of the module rules
out (`if self.cfg.chained:`) does not count.
"""

from __future__ import annotations

import ast
import sys
import types
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from _traincheck.branches import statements_of
from _traincheck.sources import body_of, meaning

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.sources import Body

_TRIES = (ast.Try, ast.With, ast.AsyncWith, ast.While)
# What a forward may consist of, if it only computes.
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.Expr, ast.If, ast.Pass, ast.Return)
# Of the context; mark_dirty is not among them.
_KEEPS = frozenset(
    """mark_non_differentiable save_for_backward save_for_forward
    set_materialize_grads""".split()
)
_MAKES = frozenset(  # of torch, beside what tensors have as methods
    """arange as_tensor cat empty empty_like full full_like ones ones_like stack tensor
    where zeros zeros_like""".split()
)
_BUILTINS = frozenset("float getattr int isinstance len max min range tuple".split())


def dropped_function(
    body: Body, names: dict[str, Any], owners: list[Any]
) -> ast.stmt | None:
    """A statement that drops the result of a function that only computes. owners: some
    of those whose method it is; none if it is no method."""
    return next(
        (
            statement
            for owner in owners or [None]
            for statement in statements_of(body, owner, but=_TRIES)
            if _is_dropped(statement, names)
        ),
        None,
    )


def _is_dropped(statement: ast.stmt, names: dict[str, Any]) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "apply"
        and _only_computes(meaning(value.func.value, names))
    )


def _only_computes(kind: Any) -> bool:
    if not issubclass(type(kind), type) or not issubclass(
        kind, torch.autograd.Function
    ):
        return False
    forward = vars(kind).get("forward")
    setup = vars(kind).get("setup_context")
    if not isinstance(forward, staticmethod):
        return False
    functions = [forward.__func__]
    if isinstance(setup, staticmethod):
        functions.append(setup.__func__)
    return all(_is_pure(function) for function in functions)


def _is_pure(function: Any) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    body = body_of(code)
    if not body:
        return False
    context = code.co_varnames[: code.co_argcount]
    return all(
        _is_harmless(node, context, function.__globals__)
        for statement in body
        for node in ast.walk(statement)
    )


def _is_harmless(
    node: ast.AST, arguments: tuple[str, ...], names: dict[str, Any]
) -> bool:
    """arguments: of the forward; the context is among them."""
    if isinstance(node, ast.stmt):
        if not isinstance(node, _STATEMENTS):
            return False
        if isinstance(node, ast.Expr):
            return _says_or_keeps(node.value, arguments)
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        return all(_is_own(target, arguments) for target in targets)
    if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)):
        return False
    return not isinstance(node, ast.Call) or _is_pure_call(node, arguments, names)


def _says_or_keeps(value: ast.expr, arguments: tuple[str, ...]) -> bool:
    """Is it a text, or a call of the context's?"""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return _is_context(value.func.value, arguments)
    return isinstance(value, ast.Constant)


def _is_own(target: ast.expr, arguments: tuple[str, ...]) -> bool:
    """A name of the function's, or an attribute of its context."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(_is_own(one, arguments) for one in target.elts)
    if isinstance(target, ast.Attribute):
        return _is_context(target.value, arguments)
    return isinstance(target, ast.Name)


def _is_context(value: ast.expr, arguments: tuple[str, ...]) -> bool:
    # The first argument of a forward, or of setup_context.
    return isinstance(value, ast.Name) and value.id == "ctx" and "ctx" in arguments


def _is_pure_call(
    call: ast.Call, arguments: tuple[str, ...], names: dict[str, Any]
) -> bool:
    if any(keyword.arg in (None, "out") for keyword in call.keywords):
        return False
    if isinstance(call.func, ast.Name):
        return call.func.id in _BUILTINS and call.func.id not in names
    if not isinstance(call.func, ast.Attribute):
        return False
    if _is_context(call.func.value, arguments):
        return call.func.attr in _KEEPS
    owner = root = call.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    if root is not owner and _is_context(root, arguments):
        return False
    if not isinstance(root, ast.Name) or root.id in arguments or root.id not in names:
        # A tensor's method, as far as can be known.
        is_method = hasattr(torch.Tensor, call.func.attr)
        return is_method and not call.func.attr.endswith("_")
    place = meaning(owner, names)
    if place is torch:
        known = call.func.attr in _MAKES or hasattr(torch.Tensor, call.func.attr)
    else:
        known = place in (functional, sys.modules.get("math"))
    return known and not call.func.attr.endswith("_")
