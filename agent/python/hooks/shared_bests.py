"""Weights that are kept as the best ones and are those of the model itself.

    if loss < best_loss:
        best_loss, best = loss, model.state_dict()
    ...
    model.load_state_dict(best)

A state_dict refers to the model's tensors: the next step writes into what was kept, and
the weights that are put back at the end, or saved after the loop, are the last ones. Seen
in the source where the state is given, and by the memory of what the next step updates.
What is saved or handed on before that step is right, and so is what another model was
given.
"""

from __future__ import annotations

import ast
import itertools
import sys
from typing import NamedTuple
from typing import TYPE_CHECKING

import torch

from _traincheck.frame_scopes import Scope
from _traincheck.frame_scopes import assignments
from _traincheck.frame_scopes import users_frame
from _traincheck.frame_scopes import users_frames
from _traincheck.holds import first_trained
from _traincheck.metric_names import last_name
from _traincheck.metric_names import words_of
from _traincheck.running_extremes import branches
from _traincheck.running_extremes import extreme_of
from _traincheck.sources import definition_of
from _traincheck.sources import own_nodes
from _traincheck.sources import site_of
from _traincheck.standing_bests import tree_of
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from traincheck_core import Core

    from _traincheck.awake import Awake

NAME = "opt.best_is_shared"  # of the scalar
SITE = f"{NAME}.site"

_PLACES = 32  # that are looked at, each once
_TENSORS = 4096  # of a state
_STEPS = 16  # of optimizers, until one updates the model that was asked
_SAME = frozenset(("cpu", "detach"))  # of a tensor in memory: the same memory
_CONTAINERS = frozenset(("dict", "OrderedDict"))
_SAVES = frozenset(("save", "save_file"))  # of torch, of safetensors


class _Kept(NamedTuple):
    tensors: list[TensorMark]  # of the model; none: a copy was kept
    site: int


class SharedBests:
    def __init__(self, core: Core, awake: Awake) -> None:
        self._core = core
        self._awake = awake
        self._places: set[tuple[str, int]] = set()
        self._kept: _Kept | None = None
        self._steps = 0  # since then
        self._site = 0

    def gave(self, state: Any) -> None:
        """Called with what a module's state_dict has given, after the first step."""
        frame = users_frame(sys._getframe(1))
        if frame is None:
            return
        place = (frame.f_code.co_filename, frame.f_lineno)
        if place in self._places or len(self._places) == _PLACES:
            return
        self._places.add(place)
        around = list(users_frames(frame))
        found = _kept_as_best([Scope(one) for one in around])
        if found is not None:
            moves = any(last_name(one) == "cpu" for one in ast.walk(found.value))
            own = _marks(state, moves) if is_the_state(found.value) else []
            keeps = around[found.number]
            site = site_of(self._core, keeps.f_globals, keeps.f_lineno)
            self._kept = _Kept(own, site)
            self._steps = 0
            self._awake.update((NAME, SITE))

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: it is about to write into the weights that were kept; 0: a copy was kept;
        None: it updates something else."""
        kept, self._steps = self._kept, self._steps + 1
        if kept is not None and kept.tensors and not _updates(optimizer, kept.tensors):
            if self._steps == _STEPS:
                self._forget()
            return None
        is_shared = kept is not None and bool(kept.tensors)
        self._site = kept.site if kept is not None and is_shared else 0
        self._forget()
        return float(is_shared)

    def _forget(self) -> None:
        self._kept = None
        self._awake.discard(NAME)

    def site(self) -> float | None:
        if NAME in self._awake:
            return None
        self._awake.discard(SITE)
        return float(self._site) or None


def _marks(state: Any, moves: bool) -> list[TensorMark]:
    """moves: does the source ask for each of them in memory?"""
    values = itertools.islice(state.values(), _TENSORS)
    tensors = [one for one in values if issubclass(type(one), torch.Tensor)]
    if moves and not all(tensor.is_cpu for tensor in tensors):
        return []  # copied from the device
    return [TensorMark(tensor) for tensor in tensors if has_mark(tensor)]


def _updates(optimizer: torch.optim.Optimizer, tensors: list[TensorMark]) -> bool:
    first = first_trained(optimizer)
    return first is not None and any(mark.is_of(first) for mark in tensors)


class _Place(NamedTuple):
    """A variable, or an attribute, in which something is kept."""

    name: str
    is_attribute: bool
    lines: list[range]  # in which the variable, or `self`, is the same

    def is_read(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            own = not self.is_attribute and self._is_within(node)
            return own and node.id == self.name and isinstance(node.ctx, ast.Load)
        if not isinstance(node, ast.Attribute) or not self.is_attribute:
            return False
        is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        own = not is_self or self._is_within(node)
        return own and node.attr == self.name and isinstance(node.ctx, ast.Load)

    def _is_within(self, node: ast.expr) -> bool:
        return any(node.lineno in some for some in self.lines)


class _Found(NamedTuple):
    value: ast.expr
    number: int  # of the scope, among those given


def _kept_as_best(scopes: list[Scope]) -> _Found | None:
    """What is kept by a statement that runs, if that is kept as the best until it is put
    back. scopes: the innermost first."""
    for number, scope in enumerate(scopes):
        for place, value, statement in _given_states(scope):
            around = scopes[number:]
            if _is_best(place.name, around) and _is_put_back(place, statement, around):
                return _Found(value, number)
    return None


def _given_states(scope: Scope) -> Iterator[tuple[_Place, ast.expr, ast.stmt]]:
    """What the statement that runs gives a state, and the value's source."""
    for node in own_nodes(scope.body()):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        if node.lineno <= scope.line <= (node.end_lineno or 0):
            for target, value in assignments(node):
                if value is not None and _asks_for_state(value):
                    place = _place_of(target, scope)
                    yield place, value, node
                    yield from _handed_on(place, value, node, scope)


def _place_of(target: ast.expr, scope: Scope) -> _Place:
    while isinstance(target, ast.Subscript):
        target = target.value
    name, tree = last_name(target), tree_of(scope.code.co_filename)
    if isinstance(target, ast.Attribute):
        family = _family_of(scope.line, tree) if tree is not None else []
        return _Place(name, True, list(map(_lines_of, family)))
    return _Place(name, False, [_lines_of(definition_of(scope.code))])


def _family_of(line: int, tree: ast.Module) -> list[ast.ClassDef]:
    """The class around a line, with classes of the file that it derives from, or that
    derive from it."""
    classes = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    bases = {
        name: {last_name(base) for base in one.bases} | {name}
        for name, one in classes.items()
    }
    own = {name for name, one in classes.items() if line in _lines_of(one)}
    for _ in classes:
        more = {name for name in classes if own & bases[name]}
        more |= {base for name in more for base in bases[name]} & classes.keys()
        if more <= own:
            break
        own |= more
    return [classes[name] for name in own]


def _lines_of(node: ast.AST | None) -> range:
    """All, if that is no part of the file."""
    begin, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
    return range(begin, (end or sys.maxsize - 1) + 1)


def _handed_on(
    place: _Place, value: ast.expr, statement: ast.stmt, scope: Scope
) -> Iterator[tuple[_Place, ast.expr, ast.stmt]]:
    """What is given what is kept there next to the statement: itself, or a copy of it."""
    for node in _block_around(scope):
        if not isinstance(node, ast.Assign) or node.lineno <= statement.lineno:
            continue
        given = node.value
        if isinstance(given, ast.IfExp):
            test = scope.known(given.test)
            if type(test) is not bool:
                continue
            given = given.body if test else given.orelse
        if any(map(place.is_read, ast.walk(given))):
            is_itself = _is_it(given, place)
            if is_itself and _is_set(place, statement, node, scope):
                return  # to something else, a copy of it perhaps
            other = _place_of(node.targets[0], scope)
            yield other, value if is_itself else given, node


def _is_it(given: ast.expr, place: _Place) -> bool:
    """Or a dictionary that has it as an entry (with the epoch, for instance)?"""
    if isinstance(given, ast.Dict):
        return any(map(place.is_read, given.values))
    if isinstance(given, ast.Call) and last_name(given.func) in _CONTAINERS:
        return any(place.is_read(word.value) for word in given.keywords if word.arg)
    return isinstance(given, (ast.Name, ast.Attribute))


def _is_set(place: _Place, begin: ast.stmt, end: ast.stmt, scope: Scope) -> bool:
    """Between two statements of the block that runs, in one that may run?"""
    last = begin.end_lineno or begin.lineno
    return any(
        isinstance(node, (ast.Attribute, ast.Name))
        and isinstance(node.ctx, ast.Store)
        and last < node.lineno < end.lineno
        and last_name(node) == place.name
        for node in _live(_block_around(scope), scope)
    )


def _block_around(scope: Scope) -> list[ast.stmt]:
    return next((branch.body for branch in branches(scope)), scope.body())


def _asks_for_state(value: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Call) and last_name(node.func) == "state_dict"
        for node in ast.walk(value)
    )


def _is_best(name: str, scopes: list[Scope]) -> bool:
    return "best" in words_of(name) or any(
        extreme_of(branch, scope) for scope in scopes for branch in branches(scope)
    )


def _is_put_back(place: _Place, statement: ast.stmt, scopes: list[Scope]) -> bool:
    """Is it loaded or returned elsewhere, or saved at the end, and not used at once?"""
    scope = scopes[0]
    tree = tree_of(scope.code.co_filename)
    block = _block_around(scope)
    if tree is None or not block:
        return False
    begin, end = block[0].lineno, block[-1].end_lineno or 0
    last = statement.end_lineno or 0
    if any(last < node.lineno and place.is_read(node) for node in _live(block, scope)):
        return False
    return any(
        _puts_back(node, place)
        for node in ast.walk(tree)
        if not begin <= getattr(node, "lineno", begin) <= end
    ) or any(_saves_later(one, place) for one in scopes)


def _saves_later(scope: Scope, place: _Place) -> bool:
    """After the loop that runs in a function?"""
    nodes = list(own_nodes(scope.body()))
    ends = [
        node.end_lineno or 0
        for node in nodes
        if isinstance(node, (ast.For, ast.While))
        and node.lineno <= scope.line <= (node.end_lineno or 0)
    ]
    return any(
        isinstance(node, ast.Call)
        and last_name(node.func) in _SAVES
        and node.lineno > max(ends, default=sys.maxsize)
        and any(place.is_read(one) for part in node.args for one in ast.walk(part))
        for node in nodes
    )


def _live(block: list[ast.stmt], scope: Scope) -> Iterator[ast.expr]:
    """Expressions of statements that the settings do not rule out."""
    todo: list[ast.AST] = [*block]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.expr):
            yield node
        if isinstance(node, (ast.If, ast.IfExp)):
            test = scope.known(node.test)
            if type(test) is bool:
                taken: Any = node.body if test else node.orelse
                todo += taken if isinstance(taken, list) else [taken]
                continue
        todo += ast.iter_child_nodes(node)


def _puts_back(node: ast.AST, place: _Place) -> bool:
    if isinstance(node, ast.Call) and last_name(node.func) == "load_state_dict":
        given = [*node.args, *(word.value for word in node.keywords)]
        return any(place.is_read(one) for part in given for one in ast.walk(part))
    if isinstance(node, ast.Return) and node.value is not None:
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return any(map(place.is_read, parts))
    return False


def is_the_state(value: ast.expr) -> bool:
    """Does an expression keep the tensors of a state_dict, not copies of them?"""
    if isinstance(value, ast.Dict):
        return any(map(is_the_state, value.values))
    if isinstance(value, ast.DictComp):
        return _are_the_same(value)
    if not isinstance(value, ast.Call):
        return False
    called = value.func
    if isinstance(called, ast.Attribute) and called.attr == "copy":
        return is_the_state(called.value)  # another dictionary, of the same tensors
    if last_name(called) in _CONTAINERS:
        return any(map(is_the_state, value.args))
    return isinstance(called, ast.Attribute) and called.attr == "state_dict"


def _are_the_same(copied: ast.DictComp) -> bool:
    value: ast.expr = copied.value
    while isinstance(value, ast.Call):
        asks = value.func
        if not isinstance(asks, ast.Attribute) or asks.attr not in _SAME:
            return False
        value = asks.value
    source = copied.generators[0].iter
    if not isinstance(value, ast.Name) or not isinstance(source, ast.Call):
        return False
    called = source.func
    if not isinstance(called, ast.Attribute) or called.attr != "items":
        return False
    return is_the_state(called.value)
