"""What a model has loaded and does not hold any more when its training begins.

An initialisation that runs over all modules after a pretrained part was loaded wipes
it. A few elements of each parameter are compared, on the CPU; a head that is made
anew is a small part.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from typing import Any

    Row = tuple[torch.dtype, int]

_PARAMETERS = 64  # of a load
_ELEMENTS = 32
_LOADS = 16


class LoadedStates:
    def __init__(self) -> None:
        # Since the last step: (who loaded, its parameters as they were then).
        self._loads: list[tuple[weakref.ref[torch.nn.Module], dict[str, Row]]] = []

    def took(self, module: Any, state: Any) -> None:
        """Called when a module has taken over a state."""
        if not isinstance(module, torch.nn.Module) or not isinstance(state, dict):
            return
        names = module.named_parameters()
        loaded = ((name, p) for name, p in names if name in state)
        rows = {
            name: row
            for name, p in itertools.islice(loaded, _PARAMETERS)
            if (row := _row(p)) is not None
        }
        # Who loads a part of it again has the last word.
        taken = set(map(id, module.parameters()))
        others = [load for load in self._loads if not _overlaps(load[0](), taken)]
        self._loads = others[-_LOADS:]
        if len(rows) > 1:
            self._loads.append((weakref.ref(module), rows))

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: most of what a model loaded is gone before its first step; None: it has
        loaded nothing since the last one."""
        if not self._loads:
            return None
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        lost: float | None = None
        others = []
        for reference, rows in self._loads:
            module = reference()
            if module is None:
                continue
            now = dict(module.named_parameters())
            pairs = [
                (row, _row(now[name])) for name, row in rows.items() if name in now
            ]
            if not any(id(p) in held for p in now.values()):
                others.append((reference, rows))
                continue
            same = [one == other for one, other in pairs if _comparable(one, other)]
            if same:
                gone = same.count(False) * 2 > len(same)
                lost = max(lost or 0.0, float(gone))
        self._loads = others
        return lost


def _overlaps(module: torch.nn.Module | None, taken: set[int]) -> bool:
    return module is None or any(id(p) in taken for p in module.parameters())


def _comparable(one: Row, other: Row | None) -> bool:
    return other is not None and one[0] == other[0]


def _row(parameter: torch.Tensor) -> Row | None:
    """None: it cannot be read, or a new one might well hold the same."""
    if type(parameter) is not torch.nn.Parameter or not parameter.is_cpu:
        return None
    if parameter.dim() < 2 or parameter.layout != torch.strided:
        return None
    few = parameter.detach().reshape(-1)[:_ELEMENTS]
    return parameter.dtype, hash(tuple(few.tolist()))
