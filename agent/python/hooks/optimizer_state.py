"""What an optimizer keeps of each parameter: exp_avg, momentum_buffer, step.

Tensors are variables "Net.fc.weight/exp_avg" whose root is the optimizer.
Counters that are plain numbers, and the same for all parameters, are scalars
"state.step".
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.written_scalars import ObjectScalars, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from traincheck_core import Core

    from _traincheck.holds import Held
    from _traincheck.models import Models

    _Form = tuple[list[int], list[str]]  # ids of parameters, names of their values

_DICTIONARIES = frozenset((dict,))
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))


class OptimizerState:
    """Names of one optimizer's state, valid as long as it holds the same."""

    def __init__(self) -> None:
        self._recorded: int | None = None  # Held.recordings when the names were given
        # id of a parameter -> (root class, name)
        self._names: dict[int, tuple[str, str]] = {}
        # id of a parameter -> {state's name: variable}
        self._rows: dict[int, dict[str, int]] = {}
        self._counters = ObjectScalars()
        # Of what was recorded last, if it was all that there is: tensors only.
        self._variables: list[int] = []
        self._known: _Form | None = None

    def record(
        self,
        core: Core,
        point: int,
        what: int,
        held: Held,
        optimizer: torch.optim.Optimizer,
        models: Models,
        parameters: Sequence[int] = (),
        values: Sequence[torch.Tensor] = (),
    ) -> None:
        """what: as record_states takes it. parameters, values: variables that are recorded
        with the state, and their tensors."""
        if self._recorded != held.recordings:
            self._recorded = held.recordings
            self._known = None
            self._rename(held, optimizer, models.variable_names)
        state = _state_of(optimizer)
        tensors = self._as_before(state)
        if tensors is not None:
            both = [*parameters, *self._variables], [*values, *tensors]
            core.record_states(point, what, *both)
            return
        variables: list[int] = []
        tensors = []
        counters: dict[str, float] = {}
        for owner, entry in state.items():
            row = self._rows.get(id(owner))
            if row is None or type(entry) is not dict:
                continue  # of no parameter that it holds
            for name, value in entry.items():
                if isinstance(value, torch.Tensor):
                    variable = row.get(name)
                    if not variable:
                        variable = self._define(
                            core, held, optimizer, owner, name, models
                        )
                        row[name] = variable
                    variables.append(variable)
                    tensors.append(value)
                elif type(value) is int or type(value) is float:
                    if counters.setdefault(name, value) != value:
                        counters[name] = UNKNOWN
        both = [*parameters, *variables], [*values, *tensors]
        if both[0]:
            core.record_states(point, what, *both)
        scalars = {(f"state.{name}", 0): float(n) for name, n in counters.items()}
        self._counters.write(core, held.number, point, scalars)
        self._variables = variables
        whole = variables and not counters
        self._known = _form(state, len(variables)) if whole else None

    def _as_before(self, state: dict[Any, Any]) -> list[torch.Tensor] | None:
        """All tensors of a state that has the form of the last one: a hundred parameters
        are not gone through one by one. None: it has another one."""
        if self._known is None or _form(state, len(self._variables)) != self._known:
            return None
        tensors = list(chain.from_iterable(map(dict.values, state.values())))
        return tensors if _TENSORS.issuperset(map(type, tensors)) else None

    def _rename(
        self,
        held: Held,
        optimizer: torch.optim.Optimizer,
        variable_names: dict[int, tuple[str, str]],
    ) -> None:
        self._names = {}
        for variable, tensor in zip(*held.state(optimizer)):
            # A tied weight has one state, under its first name.
            self._names.setdefault(id(tensor), variable_names[variable])
        self._rows = {number: {} for number in self._names}

    def _define(
        self,
        core: Core,
        held: Held,
        optimizer: torch.optim.Optimizer,
        owner: Any,
        name: str,
        models: Models,
    ) -> int:
        tensor = optimizer.state[owner][name]
        root_class, owner_name = self._names[id(owner)]
        storage = core.storage_key(tensor)
        variable = core.define_variable(
            tensor,
            f"{owner_name}/{name}",
            root_class,
            held.number,
            core.VARIABLE_OPTIMIZER_STATE,
            naming.class_name(type(optimizer)),
            storage,
        )
        models.set_storage(variable, storage)
        return variable


def _form(state: dict[Any, Any], count: int) -> _Form | None:
    """None: it has not so many values, or not in plain dictionaries."""
    entries = state.values()
    if not _DICTIONARIES.issuperset(map(type, entries)):
        return None
    names = list(chain.from_iterable(entries))
    return (list(map(id, state)), names) if len(names) == count else None


def _state_of(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    """What is stepped as an optimizer need not be torch's."""
    state = getattr(optimizer, "state", None)
    return state if isinstance(state, dict) else {}
