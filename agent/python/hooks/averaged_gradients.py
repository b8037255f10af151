"""Replicas without a wrapper: gradients that the script averages over ranks itself.

Who gives all_reduce the gradients of parameters, one by one or all in one flat
tensor, trains replicas: the same update is meant for all members of the group.
Parameters are replicas from the step on that uses such a gradient.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.distributed import ProcessGroup
    from traincheck_core import Args, Kwargs

    from _traincheck.device_values import DeviceValues
    from _traincheck.holds import Held, Holds
    from _traincheck.topology import Topology


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.reduced: dict[int, ProcessGroup] = {}  # by id of the parameter
        self.steps = 0  # before which something was reduced, whatever it was
        # number of the process group -> number of the replica group, variables
        self.groups: dict[int, tuple[int, set[int]]] = {}
        self.of_all = False  # is one of them that of all ranks?


class _Place:
    """A parameter, by where its optimizer holds it: see tensor_marks.py."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, group: int, position: int
    ) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._group, self._position = group, position

    def parameter(self) -> torch.Tensor | None:
        optimizer = self._optimizer()
        if optimizer is None or self._group >= len(optimizer.param_groups):
            return None
        parameters: list[torch.Tensor] = optimizer.param_groups[self._group]["params"]
        if self._position >= len(parameters):
            return None
        return parameters[self._position]


class _Index:
    """Parameters of the optimizers that are looked at, since the last step."""

    def __init__(self) -> None:
        # By their number of elements.
        self.of_size: dict[int, list[tuple[_Row, _Place]]] = {}
        self.optimizers: list[tuple[_Row, weakref.ref[torch.optim.Optimizer], int]] = []

    def add(self, row: _Row, optimizer: torch.optim.Optimizer) -> None:
        size = 0
        for group, of_group in enumerate(optimizer.param_groups):
            for position, parameter in enumerate(of_group["params"]):
                elements = parameter.numel()
                size += elements
                known = self.of_size.setdefault(elements, [])
                known.append((row, _Place(optimizer, group, position)))
        self.optimizers.append((row, weakref.ref(optimizer), size))


class AveragedGradients:
    def __init__(self, topology: Topology, holds: Holds, values: DeviceValues) -> None:
        self._values = values
        self._topology = topology
        self._holds = holds
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()
        self._index: _Index | None = None

    def reduces(self, group: ProcessGroup | None, args: Args, kwargs: Kwargs) -> None:
        """Called before every all_reduce, with its arguments."""
        tensor = args[0] if args else kwargs.get("tensor")
        if not _is_summed(args, kwargs) or not _is_plain(tensor):
            return
        if group is None or torch.distributed.get_world_size(group) < 2:
            return
        if self._index is None:
            self._index = self._make_index()
        for row, place in self._index.of_size.get(tensor.numel(), ()):
            parameter = place.parameter()
            gradient = None if parameter is None else parameter.grad
            if gradient is not None and _is_at(gradient, tensor):
                row.reduced[id(parameter)] = group
                return
        if tensor.dim() == 1 and tensor.is_floating_point():
            self._reduces_flat(tensor, group, self._index)

    def optimizer_steps(self, optimizer: torch.optim.Optimizer, held: Held) -> None:
        """Called as its step begins. REQUIRES: the hold is complete."""
        if self._index is None and len(self._rows) == 0:
            return  # nothing has been reduced so far
        row = self._row_of(optimizer)
        looked = self._index is not None
        self._index = None
        row.steps += looked or bool(row.reduced)
        if not row.reduced:
            return
        variables, tensors = held.state(optimizer)
        found: dict[int, tuple[ProcessGroup, list[int]]] = {}
        for variable, tensor in zip(variables, tensors):
            group = row.reduced.get(id(tensor))
            if group is not None:
                number = self._topology.ensure(group)
                found.setdefault(number, (group, []))[1].append(variable)
        row.reduced.clear()
        for number, (group, members) in found.items():
            self._define(row, number, group, members)

    def of_all(self, optimizer: Any) -> bool:
        """Does the script average its gradients over all ranks?"""
        row = self._rows.get(optimizer)
        return row is not None and row.of_all

    def _row_of(self, optimizer: torch.optim.Optimizer) -> _Row:
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        return row

    def _make_index(self) -> _Index:
        index = _Index()
        for optimizer in self._holds.optimizers():
            row = self._row_of(optimizer)
            if looks_at(row.steps):
                index.add(row, optimizer)
        return index

    def _define(
        self, row: _Row, number: int, group: ProcessGroup, variables: list[int]
    ) -> None:
        if number == 0 or self._topology.has_replicas(variables):
            return
        replicas, known = row.groups.get(number, (0, set()))
        if known.issuperset(variables):
            return
        replicas = replicas or self._topology.next_replica_group()
        known = known.union(variables)
        row.groups[number] = replicas, known
        size = torch.distributed.get_world_size(group)
        row.of_all = row.of_all or size == torch.distributed.get_world_size()
        self._topology.define_replicas(
            replicas, "gradients averaged by the script", 0, group, sorted(known)
        )

    def _reduces_flat(
        self, flat: torch.Tensor, group: ProcessGroup, index: _Index
    ) -> None:
        """All gradients of an optimizer, one after the other?"""
        for row, reference, size in index.optimizers:
            optimizer = reference()
            if optimizer is None or not 1 < flat.numel() <= size:
                continue
            held = list(_gradients(optimizer))
            if sum(gradient.numel() for _, gradient in held) != flat.numel():
                continue
            ends = [flat, held[0][1], held[-1][1]]
            if all(map(self._values.reads, ends)):
                first, last = ends[1].detach(), ends[2].detach()
                members = dict.fromkeys((id(one) for one, _ in held), group)
                ends = [flat[:1], flat[-1:], _end(first, 0), _end(last, -1)]
                self._values.read(ends, functools.partial(_reduced, row, members))


def _is_summed(args: Args, kwargs: Kwargs) -> bool:
    operations = torch.distributed.ReduceOp
    operation: Any = args[1] if len(args) > 1 else kwargs.get("op")
    return operation in (None, operations.SUM, operations.AVG)


def _gradients(
    optimizer: torch.optim.Optimizer,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(parameter, gradient) of those that have elements."""
    for parameter in parameters_of(optimizer):
        gradient = parameter.grad
        if gradient is not None and _is_plain(gradient) and gradient.numel() > 0:
            yield parameter, gradient


def _is_plain(tensor: Any) -> bool:
    """Has it memory of its own?"""
    return type(tensor) is torch.Tensor and tensor.layout == torch.strided


def _is_at(gradient: torch.Tensor, tensor: torch.Tensor) -> bool:
    return _is_plain(gradient) and gradient.data_ptr() == tensor.data_ptr()


def _end(gradient: torch.Tensor, place: int) -> torch.Tensor:
    return gradient.reshape(-1)[place].reshape(1)


def _reduced(
    row: _Row, members: dict[int, ProcessGroup], ends: list[torch.Tensor]
) -> None:
    """ends: first and last element of what was reduced, and of the gradients."""
    first, last, begin, end = (one.item() for one in ends)
    if first == begin and last == end:
        row.reduced.update(members)
