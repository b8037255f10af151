"""Parts of adapters that are frozen while they are all zeros.

An adapter adds the product of two small matrices to what a layer computes. One of them
begins with zeros, so that the adapter changes nothing at first. Who freezes and thaws by
names, or by which adapter is the active one, may leave it frozen: it stays zero, and the
adapter adds zeros for ever. Asked of adapters that are kept by name in dictionaries, as
libraries keep them:

- one kind of matrix is trained nowhere, although others of the same adapter are: its
  name is missing in a filter. Layers that are thawed one after another have matrices of
  the same kind that are trained.
- an adapter that is not zero any more is trained, and another one in the same dictionary
  is frozen and used. One that waits for its turn is not used, or waits while the one
  before it begins with zeros, too.
"""

from __future__ import annotations

import functools
from itertools import islice
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.graph_nodes import kept, walk
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch.autograd.graph import Node

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Models

NAME = "opt.frozen_at_zeros"  # of the scalar

_FIRST, _LAST = 0, 4  # steps that are looked at
_MODULES = 20_000  # of a model
_MATRICES = 128  # that are read
_FEW = 256  # elements at a place of a matrix
_SAMPLES = 3  # such places
_NODES = 4096  # of a graph
_FACTORS = {
    "AddmmBackward0": ("mat1", "mat2"),
    "BmmBackward0": ("self", "mat2"),
    "ConvolutionBackward0": ("weight",),
    "LinearBackward0": ("weight",),
    "MmBackward0": ("self", "mat2"),
}


class _Entry:
    """A matrix that is kept under a name in a dictionary of a module."""

    def __init__(self, path: str, key: str, matrix: torch.Tensor, held: bool) -> None:
        self.owner, _, self.kind = path.rpartition(".")
        self.path = path
        self.key = key
        self.matrix = matrix
        self.is_trained = held and matrix.requires_grad

    def is_factor_of(self, other: _Entry) -> bool:
        """Do they make a product? REQUIRES: one owner and one key."""
        sizes = set(self.matrix.shape)
        return self.kind != other.kind and not sizes.isdisjoint(other.matrix.shape)


class _Zero:
    """A frozen matrix of zeros, once its values have come."""

    def __init__(self, matrix: torch.Tensor, is_used: bool) -> None:
        self.mark = TensorMark(matrix)
        self.is_used = is_used


class _Row:
    """One optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.zeros: list[_Zero] = []

    def looks_again(self) -> bool:
        return self.steps <= _LAST

    def awaits_loss(self) -> bool:
        return self.looks_again() and not all(zero.is_used for zero in self.zeros)

    def take(self, asked: list[tuple[_Zero, bool]], values: list[torch.Tensor]) -> None:
        """values: the samples of each that is asked for, and of what is trained beside
        it, if the second of its row says so."""
        left = iter(values)
        for zero, has_twin in asked:
            own = list(islice(left, _SAMPLES))
            twin = list(islice(left, _SAMPLES if has_twin else 0))
            if not _have_any(own) and (not has_twin or _have_any(twin)):
                self.zeros.append(zero)


class FrozenZeros:
    def __init__(self, models: Models, values: DeviceValues, awake: Awake) -> None:
        self._models = models
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def awaits_loss(self) -> bool:
        return any(map(_Row.awaits_loss, self._rows.values()))

    def backward_begins(self, roots: list[Node]) -> None:
        """Which of the zeros are factors in what led to this loss?"""
        zeros = [zero for row in self._rows.values() for zero in row.zeros]
        waiting = [zero for zero in zeros if not zero.is_used]
        for node in walk(roots, _NODES):
            for name in _FACTORS.get(node.name(), ()):
                factor = kept(node, name)
                for zero in waiting:
                    zero.is_used = zero.is_used or zero.mark.is_of(factor)

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: a matrix of an adapter was frozen and zero at both looks; None: no adapter
        is trained, or nothing shows whether what is zero is used."""
        row = self._rows.get(optimizer)
        if row is None:
            row = _Row()
            self._rows.set(optimizer, row)
        number, row.steps = row.steps, row.steps + 1
        said: float | None = None
        if number in (_FIRST, _LAST):
            said = self._look(row, number, set(map(id, parameters_of(optimizer))))
        if said is None and not any(map(_Row.looks_again, self._rows.values())):
            self._awake.discard(NAME)
        return said

    def _look(self, row: _Row, number: int, held: set[int]) -> float | None:
        is_asked = False
        found: list[tuple[_Entry, _Entry | None]] = []
        for model in self._models.all():
            root = model.root()
            factors = [] if root is None else _factors(_entries(root, held))
            if any(entry.is_trained for entry in factors):
                is_asked = True
                found += islice(_frozen(factors), _MATRICES - len(found))
        if number == _FIRST:
            self._read(row, found)
            return None
        frozen = [entry.matrix for entry, _ in found]
        zeros = [zero for zero in row.zeros if any(map(zero.mark.is_of, frozen))]
        if any(zero.is_used for zero in zeros):
            return 1.0
        return 0.0 if is_asked and not zeros else None

    def _read(self, row: _Row, found: list[tuple[_Entry, _Entry | None]]) -> None:
        asked: list[tuple[_Zero, bool]] = []
        tensors: list[torch.Tensor] = []
        for entry, twin in found:
            matrices = [entry.matrix] + ([] if twin is None else [twin.matrix])
            if all(map(self._values.reads, matrices)):
                # What is of a kind that is trained nowhere needs no proof of its use.
                asked.append((_Zero(entry.matrix, twin is None), twin is not None))
                tensors += (one for each in matrices for one in self._samples(each))
        if tensors:
            self._values.read(tensors, functools.partial(row.take, asked))

    def _samples(self, matrix: torch.Tensor) -> list[torch.Tensor]:
        """All of it, or, on a device, elements at its begin, middle and end."""
        flat = matrix.detach().reshape(-1)
        if self._values.is_here(matrix):
            return [flat, flat[:0], flat[:0]]
        last = max(0, flat.numel() - _FEW)
        return [flat[at : at + _FEW] for at in (0, last // 2, last)]


def _entries(root: torch.nn.Module, held: set[int]) -> Iterator[_Entry]:
    """held: ids of what the optimizer holds."""
    for path, module in islice(naming.walk(root), _MODULES):
        kind = type(module)
        if issubclass(kind, torch.nn.ParameterDict):
            matrices = list(module._parameters.items())
        elif issubclass(kind, torch.nn.ModuleDict):
            children = module._modules.items()
            matrices = [(key, _only_matrix(child)) for key, child in children]
        else:
            continue
        for key, matrix in matrices:
            if matrix is not None and has_mark(matrix) and matrix.dim() > 1:
                yield _Entry(path, key, matrix, id(matrix) in held)


def _only_matrix(module: torch.nn.Module | None) -> torch.Tensor | None:
    """Of a layer that has no parts."""
    if module is None or module._modules:
        return None
    parameters = [one for one in module._parameters.values() if one is not None]
    matrices = [one for one in parameters if one.dim() > 1]
    return matrices[0] if len(matrices) == 1 else None


def _factors(entries: Iterable[_Entry]) -> list[_Entry]:
    """Those that are multiplied with another one."""
    adapters: dict[tuple[str, str], list[_Entry]] = {}
    for entry in entries:
        adapters.setdefault((entry.owner, entry.key), []).append(entry)
    return [
        entry
        for group in adapters.values()
        for entry in group
        if any(map(entry.is_factor_of, group))
    ]


def _frozen(entries: list[_Entry]) -> Iterator[tuple[_Entry, _Entry | None]]:
    """Those that should not be zero, and the trained one in the same dictionary that
    should not be zero either where this is asked for."""
    kinds = {entry.kind for entry in entries if entry.is_trained}
    keys = {entry.key for entry in entries if entry.is_trained}
    trained = {entry.path: entry for entry in entries if entry.is_trained}
    for entry in entries:
        if entry.matrix.requires_grad:
            continue
        if entry.kind not in kinds and entry.key in keys:
            yield entry, None
        elif entry.key not in keys and entry.path in trained:
            yield entry, trained[entry.path]


def _have_any(samples: list[torch.Tensor]) -> bool:
    return any(bool(sample.any()) for sample in samples)
