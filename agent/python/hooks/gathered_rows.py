"""Products with the embeddings of all ranks, in which a rank's own are constants.

A contrastive loss over ranks multiplies a rank's embeddings with those of all ranks.
What all_gather fills has no graph: unless a rank puts its own rows back, or gathers by
a function that has a backward, each embedding is trained as a query alone, and what the
loss says of it as a key is lost.

The rows are known again by a few of their numbers, at their place among those of the
ranks, also where they were normalised since. A momentum encoder begins with the weights
of the other one, so that its rows may be the same at first: only what returns at several
steps is said.
"""

from __future__ import annotations

import collections
from typing import NamedTuple, TYPE_CHECKING

import torch

from _traincheck.findings import Findings
from _traincheck.graph_nodes import PRODUCTS, inputs, saved, walk
from _traincheck.value_graph import SAME_VALUES

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from torch.distributed import ProcessGroup
    from traincheck_core import Args, Core, Kwargs

    from _traincheck.device_values import DeviceValues

# Name of the scalar.
NAME = "loss.own_rows_constant"

# What gathers rows -> the names of what it fills and of what it is given.
GATHERS = {
    "all_gather": ("tensor_list", "tensor"),
    "all_gather_into_tensor": ("output_tensor", "input_tensor"),
    "all_gather_single": ("output_tensor", "input_tensor"),  # what that calls, too
}

_LOOKS = 8  # backwards of losses with gathered rows
_GATHERS = 64  # that are looked at in all
_NOTES = 8  # since a backward
_STEPS = 3  # at which a mistake returns
_MAX_NODES = 256
_WAY = 64  # nodes between a product and what was gathered
_ROWS, _FEWEST, _NUMBERS = 4, 4, 8  # rows that are compared, and numbers of each
_BLOCKS = 8  # gathered one behind the other
_EXACT, _ROUNDED = 1e-5, 2e-2  # errors of numbers, by their type
_APART = 4.0  # errors by which rows of two ranks differ at least
# The operands of products and their places among what each is given.
_OPERANDS = {name: (("self", 0), ("mat2", 1)) for name in PRODUCTS}
_OPERANDS["AddmmBackward0"] = (("mat1", 1), ("mat2", 2))
_OPERANDS["BaddbmmBackward0"] = (("batch1", 1), ("batch2", 2))
# What may be done to embeddings before they are multiplied: they are scaled.
_SCALES = SAME_VALUES | {
    "ClampMinBackward0",
    "DivBackward0",
    "ExpandBackward0",
    "LinalgVectorNormBackward0",
    "MulBackward0",
    "NormBackward1",
}


class _Note(NamedTuple):
    """Rows that were gathered; nothing of it is a tensor."""

    number: int  # of the node that computed them
    with_gradients: bool  # were gradients enabled?
    size: tuple[int, int]
    rank: int
    world: int
    own: list[list[float]]  # the first rows
    other: list[float]  # the first row of the next rank
    site: int


class GatheredRows:
    def __init__(self, core: Core, values: DeviceValues) -> None:
        self._core = core
        self._values = values
        self._gathers = self._looks = 0
        self._notes: collections.deque[_Note] = collections.deque(maxlen=_NOTES)
        self._steps: set[int] = set()  # at which own rows were constants
        self._is_unclear = False

    def gathered(
        self, name: str, group: ProcessGroup | None, args: Args, kwargs: Kwargs
    ) -> None:
        """Called behind each call that has waited for the other ranks."""
        if self._gathers == _GATHERS or self._looks == _LOOKS or group is None:
            return
        into, given = GATHERS[name]
        filled: Any = args[0] if args else kwargs.get(into)
        rows: Any = args[1] if len(args) > 1 else kwargs.get(given)
        if not self._reads(rows) or rows.grad_fn is None:
            return
        world = torch.distributed.get_world_size(group)
        rank = torch.distributed.get_rank(group)
        if world < 2 or not 0 <= rank < world or rows.shape[1] < _FEWEST:
            return
        other = self._of_rank(filled, (rank + 1) % world, len(rows))
        number = _number(rows.grad_fn)
        if other is None or number is None:
            return
        self._gathers += 1
        size = (int(rows.shape[0]), int(rows.shape[1]))
        own, site = _numbers(rows.detach()[:_ROWS]), self._core.site_here()
        enabled = torch.is_grad_enabled()
        note = _Note(number, enabled, size, rank, world, own, other, site)
        if not _are_equal([own[0]], [other], _APART * _error(rows.dtype)):
            self._notes.append(note)

    def awaits_loss(self) -> bool:
        return bool(self._notes)

    def backward_begins(self, roots: list[Node], steps: int) -> Findings:
        """steps: that have begun so far."""
        notes = list(self._notes)
        self._notes.clear()
        found = Findings()
        if self._looks == _LOOKS:
            return found
        self._looks += 1
        seen = _look(roots, notes)
        wrong = seen.wrong
        if wrong is None:
            found.add(NAME, 0.0 if seen.right else None)
        elif seen.right or seen.beside:
            self._is_unclear = True
        elif not self._is_unclear:
            self._steps.add(steps)
            if len(self._steps) >= _STEPS:
                found.add(NAME, 1.0)
                found.add(f"{NAME}.site", wrong.site or None)
        return found

    def _of_rank(self, filled: Any, rank: int, rows: int) -> list[float] | None:
        """The first row that this rank has given."""
        if type(filled) in (list, tuple):
            part = filled[rank] if rank < len(filled) else None
        elif self._reads(filled):
            part = filled.detach()[rank * rows : (rank + 1) * rows]
        else:
            part = None
        if part is None or not self._reads(part) or len(part) != rows:
            return None
        return _numbers(part[:1])[0]

    def _reads(self, tensor: Any) -> bool:
        """Is it a plain matrix here?"""
        if type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
            return False
        is_matrix = tensor.dim() == 2 and tensor.is_floating_point()
        return is_matrix and tensor.numel() > 0 and self._values.is_here(tensor)


class _Seen:
    """Products of one loss."""

    def __init__(self) -> None:
        self.wrong: _Note | None = None  # rows that are constants among those of all
        self.right = False  # are some not?
        self.beside = False  # are embeddings of this rank multiplied with each other?


def _look(roots: list[Node], notes: list[_Note]) -> _Seen:
    seen = _Seen()
    numbers = {note.number for note in notes}
    for node in walk(roots, _MAX_NODES):
        operands = _OPERANDS.get(node.name(), ())
        givers = [node.next_functions[place][0] for _, place in operands]
        for number, (key, _) in enumerate(operands):
            given, query = givers[number], givers[1 - number]
            note = _note_of(node, key, notes)
            if note is None:
                both = _is_scaled(given, numbers) and _is_scaled(query, numbers)
                seen.beside = seen.beside or both
                continue
            has_graph = _has_graph(given, numbers)
            seen.right = seen.right or has_graph is True
            seen.beside = seen.beside or has_graph is None
            if has_graph is False and note.with_gradients:
                if _is_scaled(query, numbers):
                    seen.wrong = seen.wrong or note
    return seen


def _note_of(node: Node, key: str, notes: list[_Note]) -> _Note | None:
    """Whose rows, with those of the other ranks, this operand has."""
    operand = saved(node, key)
    while operand is not None and operand.dim() > 2 and operand.shape[0] == 1:
        operand = operand[0]
    if operand is None or operand.dim() != 2 or operand.layout != torch.strided:
        return None
    rows = operand if key in ("self", "mat1", "batch1") else operand.t()
    return next((note for note in notes if _has(rows, note)), None)


def _has(rows: torch.Tensor, note: _Note) -> bool:
    """The rows of this rank and of the next one, each at the place of its rank?"""
    count, width = note.size
    if rows.shape[1] != width or not rows.is_floating_point():
        return False
    error = _error(rows.dtype)
    following = (note.rank + 1) % note.world
    for block in range(min(_BLOCKS, len(rows) // (note.world * count))):
        first = block * note.world * count
        own = rows[first + note.rank * count :][: min(_ROWS, count)]
        other = rows[first + following * count :][:1]
        is_own = _are_equal(_numbers(own), note.own, error)
        if is_own and _are_equal(_numbers(other), [note.other], error):
            return True
    return False


def _has_graph(operand: Node | None, numbers: set[int]) -> bool | None:
    """Does a gradient reach gathered rows? None: not known."""
    if operand is None:
        return False
    nodes = list(walk([operand], _WAY))
    if any(_number(node) in numbers for node in nodes):
        return True
    return None if len(nodes) >= _WAY else False


def _is_scaled(operand: Node | None, numbers: set[int]) -> bool:
    """Was it gathered, as it is or otherwise scaled?"""
    todo = [operand] if operand is not None else []
    for _ in range(_WAY):
        if not todo:
            return False
        node = todo.pop()
        if _number(node) in numbers:
            return True
        if node.name() in _SCALES:
            todo += inputs(node)
    return False


def _number(node: Node) -> int | None:
    """Of those that this thread makes, each has its own."""
    ask: Any = getattr(node, "_sequence_nr", None)
    number = ask() if callable(ask) else None
    return number if type(number) is int else None


def _numbers(rows: torch.Tensor) -> list[list[float]]:
    numbers: list[list[float]] = rows.detach()[:, :_NUMBERS].double().tolist()
    return numbers


def _error(dtype: torch.dtype) -> float:
    return _EXACT if dtype in (torch.float32, torch.float64) else _ROUNDED


def _are_equal(
    rows: list[list[float]], others: list[list[float]], error: float
) -> bool:
    """Have they the same directions?"""
    pairs = zip(map(_direction, rows), map(_direction, others))
    return all(
        one is not None
        and other is not None
        and all(abs(a - b) <= error for a, b in zip(one, other))
        for one, other in pairs
    )


def _direction(row: list[float]) -> list[float] | None:
    length = sum(number * number for number in row) ** 0.5
    return [number / length for number in row] if 0 < length < float("inf") else None
