"""Averages and target networks whose update stores nothing.

    for average, weight in zip(copy.parameters(), model.parameters()):
        average = decay * average + (1 - decay) * weight     # a name, not the tensor

    mixed = {name: mix(value, target_state[name]) for name, value in state.items()}
    # and nobody loads it

The method or function that updates them runs again and again, and what it is to move is
what it was, although its source moves. What it is to move is what it speaks of: a
reference that is kept beside it may stand still. A method in which a model is called or
an optimizer steps is a training's, and one that asks for numbers first (a beginning,
each hundredth call) may be waiting; both are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.followers import parameter_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import named_parameters_in
from _traincheck.sources import site_of
from _traincheck.averaging_classes import entries_of

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.holds import Holds
    from _traincheck.models import Models
    from traincheck_core import Core

    Get = Callable[[], torch.Tensor | None]

# Name of the scalar.
NAME = "opt.average_stands_still"

_CALLS = 64  # of the updates of one object
_MOVES = 6  # of the source, while the average stood still
_TRIES = 4  # to find what an object updates
_ELEMENTS = 64
_FEWEST = 8  # elements of a parameter that is looked at
_APART = 0.01  # in lengths of the source; a small share of less may be rounded away


class _Row:
    """One object that updates something."""

    def __init__(self) -> None:
        self.both: tuple[Get, Get] | None = None  # what follows, and its source
        self.method: types.FunctionType | None = None
        self.began = 0  # trainings before the call that runs
        self.calls = 0
        self.moves = 0  # of the source
        self.before: torch.Tensor | None = None
        self.source: torch.Tensor | None = None

    def end(self) -> None:
        self.calls = _CALLS
        self.both = self.before = self.source = self.method = None


class StandingAverages:
    def __init__(
        self,
        core: Core,
        models: Models,
        holds: Holds,
        values: DeviceValues,
        awake: Awake,
    ) -> None:
        self._core = core
        self._models = models
        self._holds = holds
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._trainings = 0
        self._site = 0
        self._said: float | None = None

    def trains(self) -> None:
        """A model is called, or an optimizer steps."""
        self._trainings += 1

    def update_begins(self, keeper: Any, method: types.FunctionType) -> None:
        """A method begins that updates what the object has."""
        row = self._rows.get(keeper)
        if row is None:
            row = _Row()
            self._rows.set(keeper, row)
        row.began = self._trainings
        if row.both is None and row.calls < _TRIES:
            spoken_of = method.__code__.co_names
            row.both = next(self.pairs_of(keeper, spoken_of), None)
            row.method = method
            if row.both is not None:
                self._look(row, *row.both)

    def mixing_begins(
        self, given: tuple[Any, ...], function: types.FunctionType
    ) -> None:
        """A function begins that moves one of the models that it is given towards the
        other one."""
        both = _two_of(given)
        if both is None or any(_is_end(one) for one in given):
            return
        row = self._rows.get(both[0])
        if row is None:
            row = _Row()
            self._rows.set(both[0], row)
        row.began = self._trainings
        if row.both is None and row.calls < _TRIES:
            row.both, row.method = self._pair_of(*both), function
            if row.both is not None:
                self._look(row, *row.both)

    def mixed(self, given: tuple[Any, ...]) -> None:
        """Called when it has ended."""
        both = _two_of(given)
        if both is not None:
            self.updated(both[0])

    def updated(self, keeper: Any) -> None:
        """Called when it has ended."""
        row = self._rows.get(keeper)
        if row is None or row.calls == _CALLS:
            return
        if row.began != self._trainings:
            return row.end()
        row.calls += 1
        if row.both is not None:
            self._look(row, *row.both)

    def optimizer_steps(self) -> float | None:
        """1: what is updated stands still; None: not known of any."""
        return self._said

    def site(self) -> float | None:
        """Of the method; None: there is none, or that is not known."""
        return float(self._site) or None

    def _look(self, row: _Row, follower: Get, source: Get) -> None:
        now, origin = (self._few(get()) for get in (follower, source))
        if now is None or origin is None:
            return row.end()
        before, row.before = row.before, now
        former, row.source = row.source, origin
        if before is None or former is None or before.shape != now.shape:
            return
        if not torch.equal(before, now):
            row.end()
            return self._say(0.0)
        row.moves += not torch.equal(former, origin)
        is_apart = float((now - origin).norm()) > _APART * float(origin.norm())
        if row.moves >= _MOVES and is_apart:
            if row.method is not None:
                line = row.method.__code__.co_firstlineno
                self._site = site_of(self._core, row.method.__globals__, line)
            row.end()
            self._say(1.0)

    def _say(self, value: float) -> None:
        self._said = max(self._said or 0.0, value)
        self._awake.update((NAME, f"{NAME}.site"))

    def _few(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """None: it cannot be compared here."""
        if tensor is None or not tensor.is_floating_point():
            return None
        if not self._values.is_here(tensor):
            return None
        return tensor.detach().flatten()[:_ELEMENTS].float().clone()

    def _pair_of(
        self, one: torch.nn.Module, other: torch.nn.Module
    ) -> tuple[Get, Get] | None:
        held = self._holds.held_tensors()
        for follower, source in ((one, other), (other, one)):
            mine = list(named_parameters_in(follower))
            theirs = list(named_parameters_in(source))
            if any(id(parameter) in held for _, parameter in mine):
                continue
            # Their names may differ by a wrapper's prefix.
            if [p.shape for _, p in mine] != [p.shape for _, p in theirs]:
                continue
            for (name, _), (of_source, parameter) in zip(mine, theirs):
                if _is_moved(parameter, held):
                    gets = parameter_of(follower, name), parameter_of(source, of_source)
                    return gets
        return None

    def pairs_of(
        self, keeper: Any, names: Collection[str]
    ) -> Iterator[tuple[Get, Get]]:
        """What an object updates, and what it follows. names: what its method speaks
        of."""
        own = dict(_named_of(keeper))
        spoken_of = [module for name, module in own.items() if name in names]
        roots = [root for model in self._models.all() if (root := model.root())]
        held = self._holds.held_tensors()
        for source in [*own.values(), *roots]:
            named = list(named_parameters_in(source))
            name = next((n for n, one in named if _is_moved(one, held)), None)
            if name is None:
                continue
            for kept in entries_of(keeper, named):
                if kept.has(name) and kept.attribute in names:
                    yield kept.getter(name), parameter_of(source, name)
            for module in spoken_of:
                mine = list(named_parameters_in(module))
                is_held = any(id(parameter) in held for _, parameter in mine)
                if not is_held and _kinds(mine) == _kinds(named):
                    yield parameter_of(module, name), parameter_of(source, name)


def _two_of(given: tuple[Any, ...]) -> tuple[torch.nn.Module, torch.nn.Module] | None:
    """The models that it is given, if these are two."""
    models = [one for one in given if issubclass(type(one), torch.nn.Module)]
    return (models[0], models[1]) if len(models) == 2 else None


def _is_end(one: Any) -> bool:
    """A share of all or nothing may stand for an average that is switched off."""
    return type(one) in (bool, float, int) and one in (0, 1)


def _named_of(keeper: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    own = getattr(keeper, "__dict__", {})
    for name, value in (*own.items(), *own.get("_modules", {}).items()):
        # isinstance() would run properties of the user's objects.
        if issubclass(type(value), torch.nn.Module):
            yield name, value


def _is_moved(parameter: torch.nn.Parameter, held: set[int]) -> bool:
    """By an optimizer, and is it large enough to be compared?"""
    is_trained = parameter.requires_grad and id(parameter) in held
    return is_trained and parameter.numel() >= _FEWEST


def _kinds(
    named: list[tuple[str, torch.nn.Parameter]],
) -> list[tuple[str, torch.Size]]:
    return [(name, parameter.shape) for name, parameter in named]
