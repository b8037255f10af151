"""Trainings that go on from a file of their own, which has no state of the optimizer,
or one that nobody loads, also where a state that was asked for too early is filled in:
that of an optimizer that has not stepped is empty. Where one process writes a file with a
count of steps or epochs, or the state of a generator, and reads it again, an optimizer
with the options that it holds goes on from it.

A job reads the model that the job before it has written, and writes it again: its
optimizer begins with empty moments each time, and steps are large for a while. Weights
that are read from one file and written to another are a training's begin and result.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.file_entries import entries_of
from _traincheck.holds import parameters_of
from _traincheck.hyper_parameters import number_of
from _traincheck.module_content import parameters_in
from _traincheck.positional_states import first_tensors, mark_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.positional_states import Mark

    _Values = tuple[Any, ...]
    _Options = list[dict[str, Any]]  # of parameter groups

_DEPTH = 4  # dictionaries within each other
_ENTRIES = 256  # of a file's own
_FILES = 8  # that were read last
_FEW = 8  # elements of a tensor
# In names: of counts, and of states of generators.
_PROGRESS = ("step", "epoch", "iter", "update", "episode", "round")
_GENERATORS = ("rng", "random_state", "generator")
_PLAIN = frozenset((bool, float, int, str, tuple))


# Names of the scalars.
NAME = "opt.resumes_without_state"
LEAVES = "opt.leaves_state"


class StatelessResumes:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._read: dict[str, set[Mark | _Values]] = {}  # by path
        self._with_state: set[str] = set()  # of these, until somebody takes a state
        self._begun_with: set[str] = set()  # what models have taken over
        # Options of the optimizers in files that this process wrote, by path, and: do
        # they say how far the training has come?
        self._own: dict[str, tuple[_Options, bool]] = {}
        # An optimizer's state is kept somewhere, so that a resume can have it.
        self._keeps_state = False
        self._found = False
        # Somebody took a state; a file was written over whose state nobody took.
        self._took_state = False
        self._took_nothing = False  # of a state that has no moments
        self._leaves = False

    def loaded(self, path: Any, content: Any) -> None:
        """Called with what torch.load has given."""
        name = _name(path)
        if name is not None:
            self._read[name] = _marks(content, _DEPTH)
            if holds_optimizer(content):
                self._with_state.add(name)
            for old in list(self._read)[:-_FILES]:
                del self._read[old]
                self._with_state.discard(old)

    def takes(
        self, taker: Any, state: Any, optimizers: Iterable[torch.optim.Optimizer]
    ) -> None:
        """Called when a module or an optimizer is about to take over a state."""
        if isinstance(taker, torch.optim.Optimizer):
            self._keeps_state = True
            self._took_nothing = _is_empty(state)
            if not self._took_nothing:
                self._took_state = self._took_state or bool(self._with_state)
                self._with_state.clear()
        elif isinstance(taker, torch.nn.Module) and isinstance(state, dict):
            if self._read and _is_trained(taker, optimizers):
                return  # it goes back, and its optimizer keeps what it has
            marks = _marks(state, 1)
            self._begun_with.update(
                name for name, read in self._read.items() if marks & read
            )
            self._awake.update((NAME, LEAVES))

    def saves(
        self, path: Any, content: Any, optimizers: Iterable[torch.optim.Optimizer]
    ) -> None:
        """Called before torch.save writes."""
        if holds_optimizer(content):
            self._keeps_state = True
            if self._is_other(path, content):
                self._with_state.discard(_name(path) or "")
            left = self._begun_with & self._with_state
            self._leaves = self._leaves or _name(path) in left
            self._wrote(path, content)
        elif (
            not self._keeps_state
            and _name(path) in self._begun_with
            and any(map(has_moments, optimizers))
        ):
            self._found = True

    def optimizer_steps(self) -> float | None:
        """1: so it is; 0: a model began from a file, and a state is kept."""
        if not self._begun_with:
            return None
        if self._keeps_state:
            return 0.0
        return 1.0 if self._found else None

    def leaves_state(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: the file from which a model began has an optimizer's state that nobody
        took: it is written to it again, or an optimizer took an empty state, or begins
        with what this process wrote; 0: somebody took one."""
        left = self._begun_with & self._with_state
        if left and not self._leaves:
            self._leaves = self._took_nothing or self._begins_anew(left, optimizer)
        if self._leaves:
            return 1.0
        return 0.0 if self._took_state else None

    def _wrote(self, path: Any, content: Any) -> None:
        name, groups = _name(path), _groups(content)
        if name is not None and groups is not None:
            self._own[name] = _options(groups), _goes_on(content)
            for old in list(self._own)[:-_FILES]:
                del self._own[old]

    def _is_other(self, path: Any, content: Any) -> bool:
        """Did this process write the file for an optimizer with other options? It is
        another phase of one training then."""
        known, groups = self._own.get(_name(path) or ""), _groups(content)
        return known is not None and groups is not None and known[0] != _options(groups)

    def _begins_anew(self, left: set[str], optimizer: torch.optim.Optimizer) -> bool:
        own = [self._own[name] for name in left if name in self._own]
        files = [options for options, goes_on in own if goes_on]
        if not files or has_moments(optimizer):
            return False
        return _options(optimizer.param_groups) in files


def _goes_on(content: Any) -> bool:
    """Does it say how far the training has come?"""
    return isinstance(content, dict) and any(
        _says_how_far(name.lower(), value)
        for name, value in islice(content.items(), _ENTRIES)
        if isinstance(name, str)
    )


def _says_how_far(name: str, value: Any) -> bool:
    if type(value) is int:
        return value > 0 and any(word in name for word in _PROGRESS)
    return value is not None and any(word in name for word in _GENERATORS)


def _groups(content: Any) -> Any:
    """The parameter groups of the one optimizer's state in it; None: there is none, or
    several."""
    found = list(filter(is_of_optimizer, entries_of(content)))
    return found[0]["param_groups"] if len(found) == 1 else None


def _options(groups: Any) -> _Options:
    """What the groups were made with."""
    return [
        {
            **{name: one for name, one in group.items() if type(one) in _PLAIN},
            "lr": number_of(group.get("initial_lr", group.get("lr"))),
            "params": len(group.get("params", ())),
        }
        for group in groups
        if isinstance(group, dict)
    ]


def _marks(content: Any, depth: int) -> set[Mark | _Values]:
    """Where its first tensors lie, and how they begin: a template has memory of its
    own."""
    tensors = list(first_tensors(content, depth))
    marks: set[Mark | _Values] = {mark_of(one) for one in tensors}
    for tensor in tensors:
        if tensor.is_cpu and tensor.dim() > 1:
            marks.add((tensor.shape, *first_of(tensor.detach(), _FEW).tolist()))
    return marks


def _name(path: Any) -> str | None:
    return os.path.realpath(path) if isinstance(path, (str, os.PathLike)) else None


def holds_optimizer(content: Any) -> bool:
    """An optimizer, or a state of one that is not empty?"""
    return any(
        isinstance(one, torch.optim.Optimizer)
        or (is_of_optimizer(one) and bool(one.get("state")))
        for one in entries_of(content)
    )


def is_of_optimizer(state: Any) -> bool:
    return isinstance(state, dict) and "param_groups" in state


def _is_empty(state: Any) -> bool:
    """As of an optimizer that has not stepped."""
    return is_of_optimizer(state) and not state.get("state")


def _is_trained(
    module: torch.nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> bool:
    """Does some optimizer have moments of its parameters?"""
    held: set[int] = set()
    for optimizer in filter(has_moments, optimizers):
        held.update(map(id, parameters_of(optimizer)))
    return any(id(one) in held for one in parameters_in(module))


def has_moments(optimizer: torch.optim.Optimizer) -> bool:
    return any(
        isinstance(value, torch.Tensor) and value.dim() > 0
        for state in list(optimizer.state.values())[:4]
        if isinstance(state, dict)
        for value in state.values()
    )
