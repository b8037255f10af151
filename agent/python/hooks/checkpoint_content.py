"""What goes into and comes out of checkpoints, key by key.

Nested dictionaries and lists give keys like "model.fc.weight" and
"optimizer.state.0.exp_avg".
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import torch

from _traincheck import naming

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

    from _traincheck.models import Models
    from _traincheck.control import Recorded

# Further entries of one checkpoint are counted, those that lie deeper not one by one.
_MAX_ENTRIES = 20_000
# Items of dictionaries and lists that are looked at: empty ones give no entries.
_MAX_VISITS = 4 * _MAX_ENTRIES
_MAX_DEPTH = 16


class CheckpointContent:
    def __init__(self, core: Core, models: Models, recorded: Recorded) -> None:
        self._core = core
        self._recorded = recorded
        self._models = models
        self._done: set[
            tuple[int, int]
        ] = set()  # (point, id of an object) in the open step

    def record(self, point: int, value: Any) -> None:
        if self._recorded.off:
            return
        keys, leaves, left_out = flatten(value)
        if keys:
            variables = [self._alias(leaf) for leaf in leaves]
            self._core.record_checkpoint(point, keys, leaves, variables, left_out)

    def record_once(self, point: int, owner: Any, value: Any) -> None:
        """As record; of the same object at most once a step.

        Programs that average weights by their state_dict ask for it every step.
        """
        if self._recorded.states and (point, id(owner)) not in self._done:
            self._done.add((point, id(owner)))
            self.record(point, value)

    def step_ended(self) -> None:
        self._done.clear()

    def _alias(self, leaf: Any) -> int:
        if not isinstance(leaf, torch.Tensor):
            return 0
        return self._models.variable_in(self._core.storage_key(leaf))


def flatten(value: Any) -> tuple[list[str], list[Any], int]:
    """(keys, leaves, how many were left out), in the order of the dictionaries."""
    keys: list[str] = []
    leaves: list[Any] = []
    left_out = 0
    seen: set[int] = set()  # of containers: one may hold itself
    todo = [("", value, 0)]
    room = _MAX_VISITS  # items that may still be looked at
    while todo:
        key, item, depth = todo.pop()
        children = None
        if len(keys) < _MAX_ENTRIES and depth < _MAX_DEPTH and id(item) not in seen:
            children = _children(item, max(0, min(room, _MAX_ENTRIES)))
        if children is not None:
            room -= len(children)
            left_out += max(0, (_size(item) or 0) - len(children))
            if not isinstance(item, tuple):  # equal ones are often the same
                seen.add(id(item))
            todo.extend(
                (naming.join(key, name), child, depth + 1)
                for name, child in reversed(children)
            )
        elif len(keys) == _MAX_ENTRIES:
            size = _size(item)
            left_out += 1 if size is None else size
        else:
            keys.append(key)
            leaves.append(item)
    return keys, leaves, left_out


def _children(item: Any, most: int) -> list[tuple[str, Any]] | None:
    """[(name, value)] of what holds others, the first ones; None: it holds none."""
    if isinstance(item, torch.nn.Module):
        return _tensors_of(item)
    # By the built-in methods: none of a subclass of the user's runs.
    if isinstance(item, dict):
        entries = itertools.islice(dict.items(item), most)
        return [(_name(key), value) for key, value in list(entries)]
    if isinstance(item, (list, tuple)):
        builtin: Any = list if isinstance(item, list) else tuple
        values = itertools.islice(builtin.__iter__(item), most)
        return [(str(n), value) for n, value in enumerate(values)]
    return None


def _size(item: Any) -> int | None:
    """Of a dictionary or a list; None: it is neither."""
    if isinstance(item, dict):
        return dict.__len__(item)
    if isinstance(item, list):
        return list.__len__(item)
    return tuple.__len__(item) if isinstance(item, tuple) else None


def _tensors_of(module: torch.nn.Module) -> list[tuple[str, Any]]:
    return [
        (naming.join(path, key), tensor)
        for path, part in naming.walk(module)
        for table in (part._parameters, part._buffers)
        for key, tensor in table.items()
        if tensor is not None
    ]


def _name(key: Any) -> str:
    # Keys may be anything; a class of the user's is not asked for its text.
    return str(key) if type(key) in (str, int, float, bool) else type(key).__name__
