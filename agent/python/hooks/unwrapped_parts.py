"""What trains beside a wrapped model, in no wrapper: replicas all the same.

The loss of a metric learning, a temperature or a discriminator have parameters of
their own. Where the model is wrapped and these are not, each rank trains them on its
own data alone. What the script averages itself (averaged_gradients.py), shards, or
told the wrapper to leave out is no part of this. Where ranks exchange parts of a batch
(all_to_all), each holds experts or tables of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.distributed import ProcessGroup

    from _traincheck.holds import Held
    from _traincheck.models import Models
    from _traincheck.topology import Topology

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.group = 0  # replica group, once there is one
        self.variables: set[int] = set()


class UnwrappedParts:
    def __init__(self, topology: Topology, models: Models) -> None:
        self._topology = topology
        self._models = models
        self._group: ProcessGroup | None = None
        self._roots: set[str] = set()  # names of the wrapped models
        self._exchanges = False
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def wrapped(self, group: ProcessGroup, variables: Iterable[int]) -> None:
        """Called with all variables of a model that was wrapped."""
        if torch.distributed.get_world_size(group) > 1:
            self._group = group
        names = self._models.variable_names
        self._roots.update(names[variable][0] for variable in variables)

    def exchanges(self) -> None:
        """Called before every all_to_all."""
        self._exchanges = True

    def optimizer_steps(self, optimizer: torch.optim.Optimizer, held: Held) -> None:
        """Called as its step begins. REQUIRES: the hold is complete."""
        if self._group is None or self._exchanges:
            return
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        if not looks_at(number):
            return
        found = row.variables.union(self._find(optimizer, held))
        if found != row.variables:
            row.variables = found
            row.group = row.group or self._topology.next_replica_group()
            kind = "trained beside a wrapped model"
            self._topology.define_replicas(
                row.group, kind, 0, self._group, sorted(found)
            )

    def _find(self, optimizer: torch.optim.Optimizer, held: Held) -> Iterable[int]:
        for variable, tensor in zip(*held.state(optimizer)):
            if self._topology.has_replicas([variable]) or tensor.grad is None:
                continue
            root = self._models.variable_names[variable][0]
            if root not in self._roots and type(tensor) in _PLAIN:
                yield variable
