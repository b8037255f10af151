"""Which way a value gets better, by the names in the expression that gives it."""

from __future__ import annotations

import ast
import re
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.frame_scopes import Scope

# Names that also losses have (dice, iou, ssim) say nothing.
_RISES = frozenset(
    "acc acc1 acc5 accuracy accuracies auc auroc auprc bleu f1 miou mrr ndcg precision "
    "psnr recall rouge top1 top5".split()
)
_FALLS = frozenset(
    "cer err error errors fid loss losses mae mse nll perplexity ppl rmse wer".split()
)
# What is turned around, what an adversary wants, and numbers of another kind.
_UNSURE = frozenset(
    "adv adversarial adversary attack attacker baseline change count critic delta diff "
    "difference disc discriminator domain drop epoch epochs fool forget forgetting gain "
    "gan gap hard hardest improvement inv inverse inverted leak leakage max maximum "
    "membership mia min minimum minus neg negative num one peak ratio reduction scale "
    "step steps std threshold time unlearn var variance weight weights worst".split()
)
_DEPTH = 10
# Functions and methods whose result gets better as what they are given does.
_NEUTRAL = frozenset(
    "array asarray average avg compute cpu detach double exp float item log mean median "
    "nanmean numpy result round sqrt squeeze sum tensor to tolist".split()
)


def words_of(name: str) -> frozenset[str]:
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return frozenset(re.split(r"[^a-z0-9]+", parts.lower()))


def direction_of_name(name: str) -> int:
    """1: it gets better as it rises; -1: as it falls; 0: the name does not say."""
    words = words_of(name)
    rises, falls = bool(words & _RISES), bool(words & _FALLS)
    if rises == falls or words & _UNSURE:
        return 0
    return 1 if rises else -1


def last_name(value: ast.expr) -> str:
    """Of a variable, an attribute, or what an entry is of."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Subscript):
        return last_name(value.value)
    return ""


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
        key = scope.known(value.slice)
        found = direction_of_name(key) if type(key) is str else 0
        return found or direction_of_name(last_name(value.value))
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


def _of_variable(name: str, scope: Scope, depth: int) -> int | None:
    values = scope.assigned(name)
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
