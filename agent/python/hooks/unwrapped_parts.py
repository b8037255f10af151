"""What trains beside a wrapped model, in no wrapper: replicas all the same.

The loss of a metric learning, a temperature or a discriminator have parameters of
their own. Where the model is wrapped and these are not, each rank trains them on its
own data alone. What the script averages itself (averaged_gradients.py), shards, or
told the wrapper to leave out is no part of this. Where ranks exchange parts of a batch
(all_to_all), each holds experts or tables of its own. On the CPU the ranks compare
the gradients of these parameters: a loss over what all ranks have gathered gives all of
them the same.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.distributed import ProcessGroup
    from traincheck_core import Core

    from _traincheck.holds import Held
    from _traincheck.models import Models
    from _traincheck.topology import Topology

# Name of the scalar: the gradients of what no wrapper has differ between ranks.
NAME = "opt.trains_beside_wrapper"

_COMPARED = 16  # parameters, at one step
_ELEMENTS = 1 << 16  # of one
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.group = 0  # replica group, once there is one
        self.variables: set[int] = set()
        self.number = 0  # among the optimizers that train something beside a wrapper


class UnwrappedParts:
    def __init__(self, core: Core, topology: Topology, models: Models) -> None:
        self._core = core
        self._count = 0
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

    def optimizer_steps(
        self, optimizer: torch.optim.Optimizer, held: Held
    ) -> float | None:
        """Called as its step begins. 1: another rank has other gradients for what this
        one trains beside a wrapper; None: nothing is, or this rank is the first to say
        its own. REQUIRES: the hold is complete."""
        if self._group is None or self._exchanges:
            return None
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        if not looks_at(number):
            return None
        found = row.variables.union(self._find(optimizer, held))
        if found != row.variables:
            row.variables = found
            row.group = row.group or self._topology.next_replica_group()
            kind = "trained beside a wrapped model"
            self._topology.define_replicas(
                row.group, kind, 0, self._group, sorted(found)
            )
        return self._compare(row, number, held.state(optimizer)) if found else None

    def _compare(
        self, row: _Row, step: int, state: tuple[list[int], list[torch.Tensor]]
    ) -> float | None:
        distributed = torch.distributed
        if not distributed.is_initialized() or self._group is None:
            return None
        if distributed.get_world_size(self._group) != distributed.get_world_size():
            return None
        if row.number == 0:
            self._count += 1
            row.number = self._count
        names = self._models.variable_names
        content = hashlib.blake2b(digest_size=16)
        of_row = [(v, t) for v, t in zip(*state) if v in row.variables]
        for variable, tensor in of_row[:_COMPARED]:
            gradient = tensor.grad
            if gradient is None or not gradient.is_cpu or type(gradient) not in _PLAIN:
                return None
            if gradient.numel() > _ELEMENTS or gradient.layout != torch.strided:
                return None
            digests = self._core.digests([gradient])
            if digests is None:
                return None
            content.update(f"{names[variable]} ".encode() + digests)
        key = f"beside {row.number} {step} {[names[v] for v, _ in of_row[:1]]}"
        what = "the gradients of what is trained beside a wrapper"
        return run_agreement.differs(self._core, what, key, content.hexdigest())

    def _find(self, optimizer: torch.optim.Optimizer, held: Held) -> Iterable[int]:
        for variable, tensor in zip(*held.state(optimizer)):
            if self._topology.has_replicas([variable]) or tensor.grad is None:
                continue
            root = self._models.variable_names[variable][0]
            if root not in self._roots and type(tensor) in _PLAIN:
                yield variable
