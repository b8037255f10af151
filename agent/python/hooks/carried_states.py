"""States that a model hands from one batch to the next, although batches are shuffled.

A recurrence that goes on over batches is right where each of them continues the one
before: a long series that is read in order. Where a loader shuffles, each sample begins
with the state of another one. Seen where a model's forward is given what it has returned
for another batch; a detached tensor has the memory of what it was detached from.
"""

from __future__ import annotations

import collections
from itertools import islice
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.samplers import draws_at_random

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.utils.data import DataLoader
    from traincheck_core import Args, Core, Kwargs

    from _traincheck.awake import Awake

# Name of the scalar of an optimizer.
NAME = "opt.carries_state"

_HABIT = 2  # batches in a row
_LOADERS = 16  # that are read at a time
_MOST = 8  # tensors of a call that are looked at
_DEPTH = 2  # containers within each other


class CarriedStates:
    def __init__(self, core: Core, awake: Awake) -> None:
        self._core = core
        self._awake = awake
        # Numbers of the loaders that shuffle, and of the batches that came of them.
        self._shuffled: collections.deque[int] = collections.deque(maxlen=_LOADERS)
        self._batches = 0
        # Module -> the batch for which it was called last, and the storages of what it
        # returned.
        self._returned: WeakIdentityMap[torch.nn.Module, tuple[int, set[int]]]
        self._returned = WeakIdentityMap()
        # Module -> batches in a row. A loss is a module as well, and is called with more
        # than its input between two calls of the model.
        self._habits: WeakIdentityMap[torch.nn.Module, int] = WeakIdentityMap()
        self._said: float | None = None

    def pass_begins(self, loader: DataLoader[Any], number: int) -> None:
        if draws_at_random(loader) and number not in self._shuffled:
            self._shuffled.append(number)

    def fetched(self, number: int) -> None:
        self._batches += number in self._shuffled

    def forward_begins(self, args: Args, kwargs: Kwargs) -> None:
        """Called at outermost ones that train, with the module as the first argument."""
        if not self._batches or not _takes_more(args, kwargs):
            return
        before = self._returned.get(args[0])
        given = [one for one in _states(args, kwargs) if _goes_with(one, args)]
        if before is None or not given or before[0] == self._batches:
            return
        if not before[1]:  # a loss: it returns one number
            return
        carried = any(self._core.storage_key(one) in before[1] for one in given)
        habit = (self._habits.get(args[0]) or 0) + 1 if carried else 0
        self._habits.set(args[0], habit)
        self._said = float(habit >= _HABIT)
        self._awake.add(NAME)

    def forward_ended(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        if not self._batches or not _takes_more(args, kwargs):
            return
        inner = isinstance(result, (tuple, list, dict))
        few = islice(_tensors(result, _DEPTH), _MOST) if inner else ()
        keys = {self._core.storage_key(one) for one in few if one.requires_grad}
        self._returned.set(args[0], (self._batches, keys - {0}))

    def optimizer_steps(self) -> float | None:
        """1: a state was carried over to other samples, twice in a row; None: no model
        is given one."""
        return self._said


def _takes_more(args: Args, kwargs: Kwargs) -> bool:
    """More than the module and its input?"""
    return len(args) > 2 or (len(args) > 1 and bool(kwargs))


def _states(args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    more = [*args[2:], *kwargs.values()]
    found = islice(_tensors(more, _DEPTH + 1), _MOST)
    return [one for one in found if not one.requires_grad]


def _goes_with(state: torch.Tensor, args: Args) -> bool:
    """Has it a row for each sample of the input?"""
    given = args[1]
    if type(given) is not torch.Tensor or given.dim() < 2 or state.dim() < 2:
        return False
    return bool(set(state.shape[:2]) & set(given.shape[:2]))


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    """Plain ones, also those in lists, tuples and dictionaries."""
    if type(value) is torch.Tensor:
        if value.layout == torch.strided and not value.is_meta:
            yield value
    elif depth > 0 and isinstance(value, (list, tuple, dict)):
        inner = dict.values(value) if isinstance(value, dict) else value
        for item in islice(inner, _MOST):
            yield from _tensors(item, depth - 1)
