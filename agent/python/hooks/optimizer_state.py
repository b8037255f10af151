"""What an optimizer keeps of each parameter: exp_avg, momentum_buffer, step.

Tensors are variables "Net.fc.weight/exp_avg" whose root is the optimizer.
Counters that are plain numbers, and the same for all parameters, are scalars
"state.step".
"""

import torch

from _traincheck import naming
from _traincheck.written_scalars import ObjectScalars, UNKNOWN


class OptimizerState:
    """Names of one optimizer's state, valid as long as it holds the same."""

    def __init__(self):
        self._recorded = None  # Held.recordings when the names were given
        self._names = {}  # id of a parameter -> (root class, name)
        self._rows = {}  # id of a parameter -> {state's name: variable}
        self._counters = ObjectScalars()

    def record(self, core, point, what, held, optimizer, models):
        """what: as record_states takes it."""
        if self._recorded != held.recordings:
            self._recorded = held.recordings
            self._rename(held, optimizer, models.variable_names)
        variables, tensors, counters = [], [], {}
        for owner, entry in _state_of(optimizer).items():
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
        if variables:
            core.record_states(point, what, variables, tensors)
        scalars = {(f"state.{name}", 0): float(n) for name, n in counters.items()}
        self._counters.write(core, held.number, point, scalars)

    def _rename(self, held, optimizer, variable_names):
        self._names = {}
        for variable, tensor in zip(*held.state(optimizer)):
            # A tied weight has one state, under its first name.
            self._names.setdefault(id(tensor), variable_names[variable])
        self._rows = {number: {} for number in self._names}

    def _define(self, core, held, optimizer, owner, name, models):
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


def _state_of(optimizer):
    """What is stepped as an optimizer need not be torch's."""
    state = getattr(optimizer, "state", None)
    return state if isinstance(state, dict) else {}
