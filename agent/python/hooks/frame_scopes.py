"""What can be told of a function that runs: by its source, and by what it knows already.

Nothing is computed, and no code of the user's runs: attributes are read from the
dictionaries of objects, never through properties.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.sources import body_of
from _traincheck.sources import is_of_user
from _traincheck.sources import own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

    from _traincheck.sources import Body

UNKNOWN = object()  # a value that nothing says

# Files of torch, and what stands around a function that is recorded.
_AROUND = (os.path.dirname(torch.__file__), "<traincheck/")
_OWN = "_traincheck."  # modules
_DEPTH = 12  # of what is looked up through names
_FRAMES = 32
_OF_USER = 5  # of these
_PLAIN = (bool, int, float, str, type(None))
# Who takes all names of a function by these keeps them.
_TAKE_ALL = frozenset(("locals", "vars", "dir", "eval", "exec", "f_locals"))


class Scope:
    """Of a frame. Made and dropped within one call: it keeps the frame alive."""

    def __init__(self, frame: FrameType) -> None:
        self._frame = frame
        self._owner: Any = UNKNOWN
        self.code = frame.f_code
        self.line = frame.f_lineno
        self.parameters = _parameters(frame.f_code)

    @property
    def is_module(self) -> bool:
        return not self.code.co_flags & inspect.CO_OPTIMIZED

    def body(self) -> Body:
        return body_of(self.code)

    def owner(self) -> Any:
        """What the method is called with as `self`; UNKNOWN: nothing says."""
        if self._owner is UNKNOWN and self.parameters[:1] == ["self"]:
            self._owner = _locals_of(self._frame).get("self", UNKNOWN)
        return self._owner

    def known(self, value: ast.expr, depth: int = 0) -> Any:
        """What an expression is now; UNKNOWN: nothing says."""
        if depth > _DEPTH:
            return UNKNOWN
        if isinstance(value, ast.Constant):
            return value.value
        if isinstance(value, ast.Name):
            return self._known_name(value.id, depth)
        if isinstance(value, ast.Attribute):
            return _attribute(self.known(value.value, depth + 1), value.attr)
        if isinstance(value, ast.Subscript):
            owner = self.known(value.value, depth + 1)
            key = self.known(value.slice, depth + 1)
            if type(owner) is dict and type(key) in _PLAIN:
                return owner.get(key, UNKNOWN)
        elif isinstance(value, ast.UnaryOp):
            return _unary(value.op, self.known(value.operand, depth + 1))
        elif isinstance(value, ast.Compare) and len(value.ops) == 1:
            left = self.known(value.left, depth + 1)
            return _is_so(
                value.ops[0], left, self.known(value.comparators[0], depth + 1)
            )
        elif isinstance(value, ast.IfExp):
            test = self.known(value.test, depth + 1)
            if type(test) in _PLAIN:
                chosen = value.body if test else value.orelse
                return self.known(chosen, depth + 1)
        return UNKNOWN

    def _known_name(self, name: str, depth: int) -> Any:
        if self.is_module:
            return self._frame.f_globals.get(name, UNKNOWN)
        if name in self.parameters:
            return self.owner() if name == self.parameters[0] else UNKNOWN
        if name in self.code.co_varnames or name in self.code.co_cellvars:
            values = self.assigned(name)
            if len(values) == 1 and values[0] is not None:
                return self.known(values[0], depth + 1)
            return UNKNOWN
        if name in self.code.co_freevars:
            return UNKNOWN
        return self._frame.f_globals.get(name, UNKNOWN)

    def assigned(self, name: str) -> list[ast.expr | None]:
        """All that a name of the function's is given; None: it is changed in a way that
        may turn it around."""
        return [
            value
            for node in own_nodes(self.body())
            for target, value in assignments(node)
            if isinstance(target, ast.Name) and target.id == name
        ]

    def argument(self, name: str) -> tuple[ast.expr, Scope] | None:
        """What the caller gives for a parameter, and the caller's scope."""
        frame = users_frame(self._frame.f_back)
        if frame is None or not is_of_user(frame.f_code.co_filename):
            return None
        caller = Scope(frame)
        call = caller.running_call()
        if call is None or not _is_call_of(call, self.code.co_name):
            return None
        value = argument_of(call, self.parameters, name)
        return None if value is None else (value, caller)

    def running_call(self) -> ast.Call | None:
        """The one that runs now. None: the source cannot be read, or Python (before
        3.11) does not say."""
        code, last = self.code, self._frame.f_lasti // 2
        positions: Any = getattr(code, "co_positions", tuple)()
        place = next((p for number, p in enumerate(positions) if number == last), None)
        if place is None or place[1] is None:
            return None
        for node in own_nodes(self.body()):
            if isinstance(node, ast.Call):
                if (node.end_lineno, node.end_col_offset) == (place[1], place[3]):
                    return node
        return None


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The first one that is neither of torch nor of the agent."""
    for _ in range(_FRAMES):
        if frame is None:
            break
        own = str(frame.f_globals.get("__name__")).startswith(_OWN)
        if not own and not frame.f_code.co_filename.startswith(_AROUND):
            return frame
        frame = frame.f_back
    return None


def users_frames(frame: FrameType) -> Iterator[FrameType]:
    """The user's own functions that run, the innermost first."""
    around: FrameType | None = frame
    looked = 0
    for _ in range(_FRAMES):
        if around is None or looked == _OF_USER:
            break
        if is_of_user(around.f_code.co_filename):
            looked += 1
            yield around
        around = users_frame(around.f_back)


def assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Targets of a statement with what each of them gets; parts of tuples, lists and
    dictionaries, too. None: it is changed in a way that may turn it around."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign):
        if isinstance(node.op, ast.Add):
            yield node.target, node.value
        elif not isinstance(node.op, (ast.Div, ast.FloorDiv)):
            yield node.target, None


def _pairs(
    target: ast.expr, value: ast.expr
) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, (ast.Tuple, ast.List)):
            if len(value.elts) == len(target.elts):
                yield from zip(target.elts, value.elts)
        return
    yield target, value
    inner: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(value, ast.Dict):
        inner = list(zip(value.keys, value.values))
    elif isinstance(value, (ast.Tuple, ast.List)):
        inner = [(ast.Constant(i), one) for i, one in enumerate(value.elts)]
    for key, one in inner:
        if key is not None:
            yield ast.Subscript(target, key, ast.Load()), one


def values_in(frame: FrameType) -> dict[str, Any]:
    """What the names of a function that runs, or of a module, stand for. To be dropped
    within the call, as it keeps all of it alive. Empty: nothing is read."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return frame.f_globals
    return _locals_of(frame)


def _locals_of(frame: FrameType) -> dict[str, Any]:
    """No other way leads from a running function to what its names stand for.

    Before Python 3.13 f_locals copies all names of the function into a dictionary that
    the frame keeps: it is emptied at once, so that nothing lives longer than it would.
    Where the function, or somebody who traces it, may hold that dictionary, nothing is
    read. That of a module is the module's own, and is not read here.
    """
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED or sys.gettrace() is not None:
        return {}
    if not _TAKE_ALL.isdisjoint(code.co_names):
        return {}
    names = frame.f_locals
    values = dict(names)
    if type(names) is dict:
        names.clear()
    return values


def _parameters(code: types.CodeType) -> list[str]:
    count = code.co_argcount + code.co_kwonlyargcount
    return list(code.co_varnames[:count])


def _attribute(owner: Any, name: str) -> Any:
    if owner is UNKNOWN or type(owner) in _PLAIN:
        return UNKNOWN
    if isinstance(owner, types.ModuleType):
        return vars(owner).get(name, UNKNOWN)
    own = attributes_of(owner)
    if name in own:
        return own[name]
    for cls in type(owner).__mro__:
        if name in vars(cls):
            found = vars(cls)[name]
            return found if type(found) in _PLAIN else UNKNOWN
    return UNKNOWN


def attributes_of(owner: Any) -> dict[str, Any]:
    """Its own, without a call of the user's; empty: it has none."""
    try:
        own: Any = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def _unary(operator: ast.unaryop, value: Any) -> Any:
    if type(value) not in _PLAIN:
        return UNKNOWN
    if isinstance(operator, ast.Not):
        return not value
    if isinstance(operator, ast.USub) and type(value) in (int, float):
        return -value
    return UNKNOWN


def _is_so(operator: ast.cmpop, left: Any, right: Any) -> Any:
    """Of what does not change with the values that are compared."""
    if isinstance(operator, (ast.Is, ast.IsNot)) and right is None:
        if left is UNKNOWN:
            return UNKNOWN
        return (left is None) == isinstance(operator, ast.Is)
    if type(left) not in _PLAIN or type(right) not in _PLAIN:
        return UNKNOWN
    if isinstance(operator, (ast.Eq, ast.Is)):
        return left == right
    if isinstance(operator, (ast.NotEq, ast.IsNot)):
        return left != right
    if type(left) is str and type(right) is str:
        if isinstance(operator, ast.In):
            return left in right
        if isinstance(operator, ast.NotIn):
            return left not in right
    return UNKNOWN


def _is_call_of(call: ast.Call, name: str) -> bool:
    called = call.func
    if isinstance(called, ast.Name):
        return called.id == name or name == "__call__"
    if isinstance(called, ast.Attribute):
        return called.attr == name or name == "__call__"
    return False


def argument_of(call: ast.Call, parameters: list[str], name: str) -> ast.expr | None:
    """What is given for a parameter of what is called; None: its default, or it cannot
    be told."""
    for word in call.keywords:
        if word.arg == name:
            return word.value
    bound = 1 if parameters[:1] == ["self"] else 0
    place = parameters.index(name) - bound
    given = call.args[: place + 1]
    if len(given) <= place or any(isinstance(one, ast.Starred) for one in given):
        return None
    return given[place]
