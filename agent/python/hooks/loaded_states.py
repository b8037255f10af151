"""What a model has loaded and does not hold any more when its training begins.

An initialisation that runs over all modules after a pretrained part was loaded wipes
it. A few elements of each parameter are compared; a head that is made anew is a small
part. Weights that are shrunk, disturbed, merged or drawn anew in part still follow what
was loaded. What came from the same file may take their place: weights that an average had
replaced when the file was written.
"""

from __future__ import annotations

import collections
import functools
import itertools
import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in, named_parameters_in, parameters_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

    Row = tuple[float, ...]  # the first elements
    Rows = dict[str, tuple[torch.dtype, Row]]

_PARAMETERS = 64  # of a load
_ELEMENTS = 32
_ALIKE = 0.5  # correlation of a few elements; random ones reach it once in 250 times
_LOADS = 16
_IN_FILES = 1024  # tensors
_ENTRIES = 4096  # of a file's containers, all together: it may hold lists of numbers


class _Load:
    """Who loaded, and its parameters as they were then."""

    def __init__(self, module: torch.nn.Module, names: set[str]) -> None:
        self.module = weakref.ref(module)
        self.names = names
        self.rows: Rows = {}

    def overlaps(self, taken: set[int]) -> bool:
        module = self.module()
        return module is None or any(id(p) in taken for p in parameters_in(module))


class LoadedStates:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._loads: list[_Load] = []  # since the last step
        self._in_files: set[Row] = set()  # rows of tensors of the last files
        self._said: WeakIdentityMap[torch.optim.Optimizer, float] = WeakIdentityMap()

    def loaded(self, content: Any) -> None:
        """Called with what torch.load has given."""
        kept = [t for t in _tensors(content) if self._values.reads(t)]
        if len(self._in_files) > _IN_FILES:
            self._in_files.clear()
        few = [first_of(tensor, _ELEMENTS) for tensor in kept[:_IN_FILES]]
        if few:
            self._values.read(few, lambda rows: self._in_files.update(map(_row, rows)))

    def took(self, module: Any, state: Any) -> None:
        """Called when a module has taken over a state."""
        if not isinstance(module, torch.nn.Module) or not isinstance(state, dict):
            return
        # Who loads a part of it again has the last word.
        taken = set(map(id, parameters_in(module)))
        others = [load for load in self._loads if not load.overlaps(taken)]
        self._loads = others[-_LOADS:]
        found = self._find(module, state)
        if len(found) > 1 or (found and not _has_embeddings(module)):
            load = _Load(module, set(found))
            self._loads.append(load)
            self._awake.add("opt.loaded_state_lost")
            self._read(found, load.rows.update)

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: most of what a model loaded was gone before its first step; None: it has
        loaded nothing since the last one, or it is not known yet."""
        if self._loads:
            self._compare(optimizer)
        said = self._said.get(optimizer)
        self._said.discard(optimizer)
        return said

    def _compare(self, optimizer: torch.optim.Optimizer) -> None:
        held = set(map(id, parameters_of(optimizer)))
        reference = weakref.ref(optimizer)
        others = []
        for load in self._loads:
            module = load.module()
            if module is None:
                continue
            if not any(id(p) in held for p in parameters_in(module)):
                others.append(load)
                continue
            self._read(
                self._find(module, load.names),
                functools.partial(self._say, reference, load.rows),
            )
        self._loads = others

    def _say(
        self, reference: weakref.ref[torch.optim.Optimizer], before: Rows, now: Rows
    ) -> None:
        optimizer = reference()
        same = [
            _follows(before[name][1], row[1]) or row[1] in self._in_files
            for name, row in now.items()
            if name in before and before[name][0] == row[0]
        ]
        if same and optimizer is not None:
            gone = float(same.count(False) * 2 > len(same))
            self._said.set(optimizer, max(self._said.get(optimizer) or 0.0, gone))

    def _find(self, module: torch.nn.Module, names: Any) -> dict[str, torch.Tensor]:
        """The first parameters of these names that can be read."""
        named = named_parameters_in(module)
        loaded = ((name, parameter) for name, parameter in named if name in names)
        few = itertools.islice(loaded, _PARAMETERS)
        return {name: parameter for name, parameter in few if self._tells(parameter)}

    def _tells(self, parameter: torch.Tensor) -> bool:
        """Not where a new one might well hold the same."""
        kind = type(parameter) is torch.nn.Parameter and parameter.dim() >= 2
        return kind and self._values.reads(parameter)

    def _read(
        self, found: dict[str, torch.Tensor], take: Callable[[Rows], None]
    ) -> None:
        names = list(found)
        dtypes = [parameter.dtype for parameter in found.values()]

        def rows(values: list[torch.Tensor]) -> None:
            take(dict(zip(names, zip(dtypes, map(_row, values)))))

        few = [first_of(parameter, _ELEMENTS) for parameter in found.values()]
        self._values.read(few, rows)


def _has_embeddings(module: torch.nn.Module) -> bool:
    """Words that a file does not know, or the padding, are often made anew."""
    kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    return any(isinstance(part, kinds) for part in modules_in(module))


def _row(few: torch.Tensor) -> Row:
    return tuple(few.double().flatten().tolist())


def _follows(before: Row, now: Row) -> bool:
    """Are they equal in part, or as long as they are similar?"""
    equal = sum(a == b for a, b in zip(before, now))
    if equal * 4 >= len(now) or len(before) != len(now):
        return equal > 0
    few = torch.tensor([before, now], dtype=torch.float64)
    return bool(torch.corrcoef(few)[0, 1] > _ALIKE)


def _tensors(content: Any) -> list[torch.Tensor]:
    """Matrices and more among its first entries, as far as they lie in containers."""
    found: list[torch.Tensor] = []
    todo = collections.deque([content])
    for _ in range(_ENTRIES):
        if not todo:
            break
        one = todo.popleft()
        if type(one) is torch.Tensor or type(one) is torch.nn.Parameter:
            found += [one] if one.dim() >= 2 else []
        elif isinstance(one, (dict, list, tuple)):
            inner = dict.values(one) if isinstance(one, dict) else one
            todo.extend(itertools.islice(inner, max(0, _ENTRIES - len(todo))))
    return found
