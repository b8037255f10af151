"""Terms of a loss that are numbers of Python, taken from tensors.

`loss = task + 0.01 * balance.item()` has the value that was meant and trains by the task
alone: a number has no graph. The expression of the loss is read from the code that calls
backward, and the graph must show an addition of something without a gradient.
"""

from __future__ import annotations

import ast
import collections
import math
import sys
from typing import TYPE_CHECKING

from _traincheck.frame_scopes import (
    Scope,
    assignments,
    attributes_of,
    users_frame,
    users_frames,
    values_in,
)
from _traincheck.own_code import codes_of
from _traincheck.sources import body_of, own_nodes

if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from torch.autograd.graph import Node

    from _traincheck.places import Place

# Name of the scalar.
NAME = "loss.term_is_a_number"

_DIFFERENT = 3  # values in a row
_NODES = 16
_SUMS = ("AddBackward0", "SubBackward0")
_SCALED = (*_SUMS, "DivBackward0", "MulBackward0", "NegBackward0")
_ARITHMETIC = (ast.Mult, ast.Div)
_OF_NUMBERS = frozenset("abs int len math max min np numpy round".split())


class NumberTerms:
    def __init__(self) -> None:
        # The last values of terms that are numbers, by their expressions.
        self._seen: dict[tuple[Place, str], list[float]] = {}

    def backward_begins(self, here: Place, roots: list[Node]) -> float | None:
        """Called in some backwards of each place. 1: a term is a number that was taken
        from a tensor; None: the loss is not a sum in the code that calls backward, or it
        is not known."""
        frame = users_frame(sys._getframe())
        for around in users_frames(frame) if frame is not None else ():
            # A function may be given the loss that it goes backward from.
            terms = _terms_of(around)
            if len(terms) < 2:
                continue
            if not _adds_a_number(roots):
                return 0.0
            found = [self._is_taken(here, term, around) for term in terms]
            return 1.0 if True in found else None if None in found else 0.0
        return None

    def _is_taken(self, here: Place, term: ast.expr, frame: FrameType) -> bool | None:
        """Is it a number from a tensor? None: that may show later."""
        known = _Numbers(frame)
        if not known.is_number(term):
            return False
        if known.are_taken:
            return True
        if not known.values:
            return False
        seen = self._seen.setdefault((here, ast.unparse(term)), [])
        seen.append(math.fsum(known.values))
        del seen[:-_DIFFERENT]
        return True if len(set(seen)) == _DIFFERENT else None


class _Numbers:
    """What one term consists of, if it is a number."""

    def __init__(self, frame: FrameType) -> None:
        self._scope = Scope(frame)
        self._names = collections.ChainMap(values_in(frame), frame.f_globals)
        self.are_taken = False  # was one taken from a tensor, as the code says?
        self.values: list[float] = []  # of those that may have been

    def is_number(self, term: ast.expr) -> bool:
        if isinstance(term, ast.Constant):
            return True
        if isinstance(term, ast.BinOp) and isinstance(term.op, _ARITHMETIC):
            return self.is_number(term.left) and self.is_number(term.right)
        if isinstance(term, ast.UnaryOp):
            return self.is_number(term.operand)
        if isinstance(term, ast.Name):
            return self._is_one(self._names.get(term.id), self._given(term.id))
        if isinstance(term, ast.Attribute) and isinstance(term.value, ast.Name):
            owner = self._names.get(term.value.id)
            kept = [one for one in _kept_as(type(owner), term.attr) if _takes(one)]
            return self._is_one(attributes_of(owner).get(term.attr), kept or [term])
        is_item = isinstance(term, ast.Call) and _is_item(term)
        self.are_taken = self.are_taken or is_item
        return is_item

    def _given(self, name: str) -> list[ast.expr]:
        """What a name was given; not what it begins with."""
        given = [one for one in self._scope.assigned(name) if one is not None]
        return [one for one in given if not isinstance(one, ast.Constant)]

    def _is_one(self, value: Any, given: list[ast.expr]) -> bool:
        if not issubclass(type(value), (int, float)):
            return False
        if given and all(map(_takes, given)):
            self.are_taken = True
        elif issubclass(type(value), float) and all(map(_is_returned, given)):
            self.values.append(value)
        return True


def _terms_of(frame: FrameType) -> list[ast.expr]:
    """Of what the call that runs is given, or called on: loss.backward(),
    scaler.scale(loss).backward(), accelerator.backward(loss), step(loss)."""
    sums = _Sums(frame)
    call = sums.scope.running_call()
    if call is None:
        return []
    if isinstance(call.func, ast.Attribute) and call.func.attr == "backward":
        loss = call.func.value
        is_scaled = isinstance(loss, ast.Call) and len(loss.args) == 1
        given = loss.args[0] if is_scaled else loss  # type: ignore[attr-defined]
        sums.add(given, call.lineno)
    for value in [*call.args, *(word.value for word in call.keywords)][:1]:
        sums.add(value, call.lineno)
    return sums.terms


class _Sums:
    def __init__(self, frame: FrameType) -> None:
        self.scope = Scope(frame)
        self._names = values_in(frame)
        self._followed: set[str] = set()
        self.terms: list[ast.expr] = []

    def add(self, value: ast.expr, line: int, is_added: bool = False) -> None:
        """Terms of an expression in this line, through the names that tensors have.
        is_added: is it one itself?"""
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            self.add(value.left, line, True)
            self.add(value.right, line, True)
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
            self.add(value.left, line, is_added)
        elif isinstance(value, ast.Name) and self._is_followed(value.id):
            self._follow(value.id, line, is_added)
        elif is_added:
            self.terms.append(value)

    def _is_followed(self, name: str) -> bool:
        if issubclass(type(self._names.get(name)), (int, float)):
            return False
        is_new = name not in self._followed
        self._followed.add(name)
        return is_new

    def _follow(self, name: str, line: int, is_added: bool) -> None:
        """What it was given last before the line, and what was added to it since: the
        same name may stand for something else elsewhere."""
        last: ast.expr | None = None
        added: list[ast.AugAssign] = []
        nodes = [
            one for one in own_nodes(self.scope.body()) if isinstance(one, ast.stmt)
        ]
        for node in sorted(nodes, key=lambda one: one.lineno):
            if node.lineno >= line:
                break
            if isinstance(node, ast.AugAssign) and _is_name(node.target, name):
                added.append(node)
                continue
            for target, value in assignments(node):
                if _is_name(target, name) and value is not None:
                    last, added = value, []
        if last is not None:
            self.add(last, last.lineno, is_added or bool(added))
        for one in added:
            self.add(one.value, one.lineno, isinstance(one.op, (ast.Add, ast.Sub)))


def _is_name(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _kept_as(cls: type[Any], name: str) -> list[ast.expr]:
    """What the methods of a class assign to an attribute."""
    return [
        value
        for code in codes_of(cls)
        for node in own_nodes(body_of(code))
        for target, value in assignments(node)
        if isinstance(target, ast.Attribute) and target.attr == name
        if value is not None
    ]


def _takes(value: ast.expr) -> bool:
    """Is a number taken from a tensor in it?"""
    return any(isinstance(one, ast.Call) and _is_item(one) for one in ast.walk(value))


def _is_item(call: ast.Call) -> bool:
    called = call.func
    return isinstance(called, ast.Attribute) and called.attr == "item" and not call.args


def _is_returned(value: ast.expr) -> bool:
    """By a function that may take it from a tensor."""
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    owner = called.value if isinstance(called, ast.Attribute) else called
    return not isinstance(owner, ast.Name) or owner.id not in _OF_NUMBERS


def _adds_a_number(roots: list[Node]) -> bool:
    """Is something added to a term next to the root that has no gradient?"""
    todo, looked = list(roots), 0
    while todo and looked < _NODES:
        node, looked = todo.pop(), looked + 1
        given = [one for one, _ in node.next_functions]
        if node.name() in _SUMS and None in given:
            return True
        if node.name() in _SCALED:
            todo.extend(one for one in given if one is not None)
    return False
