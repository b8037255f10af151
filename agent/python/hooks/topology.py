"""Process groups, device meshes, and what parallel training says of tensors."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed import ProcessGroup
    from traincheck_core import Core

    from _traincheck.models import Models

# What Megatron-style code sets on its parameters.
_ATTRIBUTES = (
    "tensor_model_parallel",
    "partition_dim",
    "partition_stride",
    "sequence_parallel",
    "allreduce",
    "expert_model_parallel",
    "shared",
)


class _Open(threading.local):
    collectives = 0


class Topology:
    """Numbers of the groups that this process is a member of."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._numbers = itertools.count(1)
        self._meshes = itertools.count(1)
        self._replica_groups = itertools.count(1)
        self._groups: dict[str, int] = {}  # name -> number
        self._sequences: dict[int, int] = {}  # number -> collectives so far
        # (model, group) -> (number, variables)
        self._replicated: dict[tuple[str, int], tuple[int, list[int]]] = {}
        self._replicas: set[int] = set()  # variables of all replica groups
        # number -> (kind, wrapper, variables) of these groups
        self._kept_equal: dict[int, tuple[str, int, list[int]]] = {}
        self._averaged = False
        self._generation = 0  # of the models
        self._open = _Open()

    def forget(self) -> None:
        """The groups are destroyed; their names may come again."""
        self._groups.clear()

    def ensure(self, group: ProcessGroup | None) -> int:
        """The number of a group, defined at first sight; 0: not a member."""
        if group is None or group is torch.distributed.GroupMember.NON_GROUP_MEMBER:
            return 0
        number = self._groups.get(group.group_name)
        if number is None:
            number = next(self._numbers)
            self._groups[group.group_name] = number
            self._define(number, group)
        return number

    def add_mesh(self, mesh: DeviceMesh) -> None:
        if mesh.get_coordinate() is None:
            return  # this rank is not in it
        number = next(self._meshes)
        names = mesh.mesh_dim_names
        for dimension in range(mesh.ndim):
            group = mesh.get_group(dimension)
            known = self.ensure(group)
            if known:
                name = names[dimension] if names else ""
                place = dict(mesh=number, mesh_dimension=dimension, mesh_name=name)
                self._define(known, group, **place)

    def enter_collective(self, group: ProcessGroup | None) -> None:
        """Only the outermost counts: some are made of others."""
        self._open.collectives += 1
        if self._open.collectives > 1:
            return
        number = self.ensure(group)
        if number:
            sequence = self._sequences.get(number, 0)
            self._sequences[number] = sequence + 1
            self._core.record_collective(number, sequence)

    def collectives(self) -> int:
        """That this process has begun, in all groups."""
        return sum(self._sequences.values())

    def leave_collective(self) -> None:
        self._open.collectives -= 1

    def next_replica_group(self) -> int:
        return next(self._replica_groups)

    def define_replicas(
        self,
        number: int,
        kind: str,
        wrapper: int,
        group: ProcessGroup,
        variables: list[int],
    ) -> None:
        """wrapper: the object that keeps them equal; 0: there is none."""
        ranks = torch.distributed.get_process_group_ranks(group)
        if self._averaged:
            ranks = [torch.distributed.get_rank()]
        self._kept_equal[number] = (kind, wrapper, variables)
        self._replicas.update(variables)
        self._core.define_replica_group(number, kind, wrapper, ranks, variables)

    def models_are_averaged(self) -> None:
        """Nothing keeps ranks equal after each step any more: each is alone."""
        self._averaged = True
        alone = [torch.distributed.get_rank()]
        for number, (kind, wrapper, variables) in self._kept_equal.items():
            self._core.define_replica_group(number, kind, wrapper, alone, variables)

    def has_replicas(self, variables: list[int]) -> bool:
        """Is each of them in a replica group?"""
        return self._replicas.issuperset(variables)

    def replicate(self, models: Models) -> None:
        """Replica groups of DTensors, as far as models found since can tell."""
        if self._generation == models.generation:
            return
        self._generation = models.generation
        found: dict[tuple[str, int], tuple[ProcessGroup, list[int]]] = {}
        for model in models.all():
            for _, variable, tensor in model.params():
                for group in _replicating_groups(tensor):
                    key = (model.name, self.ensure(group))
                    found.setdefault(key, (group, []))[1].append(variable)
        for key, (group, variables) in found.items():
            if self._replicated.get(key, (0, None))[1] == variables:
                continue
            number = self._replicated.get(key, (0, None))[0]
            number = number or self.next_replica_group()
            self._replicated[key] = (number, variables)
            self.define_replicas(number, "DTensor Replicate", 0, group, variables)

    def _define(self, number: int, group: ProcessGroup, **mesh: Any) -> None:
        distributed = torch.distributed
        self._core.define_process_group(
            number,
            group.group_name,
            distributed.get_backend(group),
            distributed.get_process_group_ranks(group),
            **mesh,
        )


def attributes(tensor: torch.Tensor, storage: int) -> list[str]:
    """What parallel training says of a parameter: ["partition_dim=0"].

    storage is the core's key of its memory, 0 where it has none of its own.
    """
    told = getattr(tensor, "__dict__", None) or {}
    found = [
        f"{name}={told[name]}"
        for name in _ATTRIBUTES
        if isinstance(told.get(name), (bool, int, str))
    ]
    if _is_dtensor(tensor):
        mesh = tensor.device_mesh
        names = mesh.mesh_dim_names or [str(d) for d in range(mesh.ndim)]
        found += [
            f"placement.{name}={placement}"
            for name, placement in zip(names, tensor.placements)
        ]
    if storage:
        found += _memory(tensor)
    return found


def _memory(tensor: torch.Tensor) -> list[str]:
    """May other processes write it? Of the CPU's only: a GPU's always says yes."""
    # Subclasses and modes of the user's must not see the question.
    with torch._C.DisableTorchFunction():
        if tensor.device.type != "cpu" or not _is_plain(tensor):
            return []
        return [f"shared_memory={tensor.is_shared()}"]


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__


def _is_dtensor(tensor: torch.Tensor) -> bool:
    # Nobody has one before its module is imported.
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _replicating_groups(tensor: torch.Tensor) -> Iterator[ProcessGroup]:
    if not _is_dtensor(tensor):
        return
    mesh = tensor.device_mesh
    for dimension, placement in enumerate(tensor.placements):
        if placement.is_replicate() and mesh.size(dimension) > 1:
            yield mesh.get_group(dimension)
