"""Rows that a script takes out of a step, and that the step changes all the same.

Zero is a gradient: weight decay and moments move a row whose gradient was set to 0
after the backward, or by a hook of the parameter within it. Who wants to keep it freezes
it, or puts it back. Rows whose gradients are set to 0 now and then (those that disagree,
the smallest ones) are to be left out of these steps only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import integer, saved, walk
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap

NAME = "opt.moves_masked_rows"  # of the scalar
_PARAMETERS = 4  # of an optimizer, of two dimensions
_MOST = 1 << 22  # elements of one
_ROWS = 64  # that are compared
_FEWEST = 8  # rows that are in or out as before, at one look or several
_FEWEST_HOOKED = 4  # rows that a hook has taken out: a token that is masked is one
_MOST_NODES = 4096  # of a loss's graph
_EMBEDDING = "EmbeddingBackward0"
_PLAIN = (torch.Tensor, torch.nn.Parameter)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.autograd.graph import Node

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues

    # Which rows had a gradient, which are out, and what some of these were as the step
    # began.
    Masked = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class _Row:
    """One optimizer. By the places of its parameters:"""

    def __init__(self) -> None:
        self.is_looked_at = True  # from here to its next step
        self.given: dict[int, torch.Tensor] = {}  # rows that a backward gave a gradient
        self.read: dict[
            int, torch.Tensor
        ] = {}  # rows that an embedding with a hook read
        self.masked: dict[int, Masked] = {}
        self.alike: dict[int, int] = {}  # rows that were in or out as before
        self.varies: set[int] = set()  # other rows are out from step to step

    def goes_on(self, place: int, given: torch.Tensor, out: torch.Tensor) -> bool:
        """Are the same rows out as at the last step, of those that had gradients?"""
        before = self.masked.get(place)
        if before is None or len(before[0]) != len(out) or place in self.varies:
            return False
        both = given & before[0]
        if bool(((out ^ before[1]) & both).any()):
            self.varies.add(place)
            return False
        self.alike[place] = self.alike.get(place, 0) + int(both.sum())
        return self.alike[place] >= _FEWEST


class MaskedRows:
    """Called while one thread trains; see signs.py."""

    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        self._rows: WeakIdentityMap[torch.optim.Optimizer, _Row] = WeakIdentityMap()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._rows.set(optimizer, _Row())
        self._awake.add(NAME)

    def awaits_loss(self) -> bool:
        """Have parameters hooks, which may set rows of their gradients to 0?"""
        return any(
            row.is_looked_at and next(_hooked(optimizer), None) is not None
            for optimizer, row in self._rows.items()
        )

    def backward_begins(self, roots: list[Node]) -> None:
        """Called with what the losses were computed by, if it is awaited."""
        read = _rows_read(roots)
        for optimizer, row in self._rows.items():
            if row.is_looked_at:
                for place, parameter in _hooked(optimizer):
                    if id(parameter) in read:
                        row.read[place] = read[id(parameter)]

    def backward_ended(self) -> None:
        for optimizer, row in self._rows.items():
            if row.is_looked_at:
                row.given = {
                    place: _given(gradient, row.read.get(place))
                    for place, _, gradient in _tables(optimizer, self._values)
                }
            row.read = {}

    def replayed(self) -> None:
        """Backwards or steps ran in a graph: which rows they reached is not known."""
        for row in self._rows.values():
            row.given, row.masked, row.read = {}, {}, {}

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: rows that were taken out of the last step, and of this one, have changed
        since it began; None: none was, or it is not known."""
        row = self._rows.get(optimizer)
        if row is None:
            return None
        given, row.given = row.given, {}
        if not given:
            row.masked = {}
            return None
        masked: dict[int, Masked] = {}
        changed: list[bool] = []
        for place, parameter, gradient in _tables(optimizer, self._values):
            if place not in given or len(given[place]) != len(parameter):
                continue
            now = gradient.any(1)
            out = given[place] & ~now
            if row.goes_on(place, given[place], out):
                changed += _changed(parameter, out, row.masked[place])
            if bool(out.any()) and bool(now.any()):
                some = out.nonzero()[:_ROWS, 0]
                kept = parameter.detach()[some].clone()
                masked[place] = (given[place], out, some, kept)
        row.masked = masked
        return float(any(changed)) if changed else None

    def expects(self, optimizer: torch.optim.Optimizer, looks: bool) -> None:
        """Called after steps(): is its next step to be looked at?"""
        row = self._rows.get(optimizer)
        if row is None:
            return
        row.is_looked_at = looks
        if looks:
            self._awake.add(NAME)
            return
        row.masked = {}
        if not any(row.is_looked_at for row in self._rows.values()):
            self._awake.discard(NAME)


def _tables(
    optimizer: torch.optim.Optimizer, values: DeviceValues
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """(place, parameter, gradient) of the first that can be read."""
    found = []
    for place, parameter in enumerate(parameters_of(optimizer)):
        gradient = parameter.grad
        if type(parameter) not in _PLAIN or type(gradient) is not torch.Tensor:
            continue
        if parameter.dim() != 2 or parameter.numel() > _MOST:
            continue
        if values.is_here(parameter) and gradient.layout == torch.strided:
            found.append((place, parameter, gradient))
            if len(found) == _PARAMETERS:
                break
    return found


def _hooked(
    optimizer: torch.optim.Optimizer,
) -> Iterator[tuple[int, torch.Tensor]]:
    """(place, parameter) of those of two dimensions whose gradient goes through a hook."""
    for place, parameter in enumerate(parameters_of(optimizer)):
        if parameter.dim() == 2 and parameter._backward_hooks:
            yield place, parameter


def _rows_read(roots: list[Node]) -> dict[int, torch.Tensor]:
    """bool[rows] of each table that an embedding has read, by the id of the parameter:
    all of these get a gradient."""
    read: dict[int, torch.Tensor] = {}
    for node in walk(roots, _MOST_NODES):
        if node.name() != _EMBEDDING:
            continue
        table = getattr(node.next_functions[0][0], "variable", None)
        tokens = saved(node, "indices")
        rows = integer(node, "weight_sym_argsize_0")
        if table is None or tokens is None or rows is None:
            continue
        these = torch.zeros(rows, dtype=torch.bool)
        these[tokens.reshape(-1)] = True
        padding = integer(node, "padding_idx")
        if padding is not None and padding >= 0:
            these[padding] = False
        before = read.get(id(table))
        read[id(table)] = these if before is None else before | these
    return read


def _given(gradient: torch.Tensor, read: torch.Tensor | None) -> torch.Tensor:
    """Rows that the backward gave a gradient, before hooks of the parameter."""
    given = gradient.any(1)
    if read is None or len(read) != len(given):
        return given
    out = read & ~given
    return given | out if int(out.sum()) >= _FEWEST_HOOKED else given


def _changed(parameter: torch.Tensor, out: torch.Tensor, before: Masked) -> list[bool]:
    """Have rows that are taken out again changed? What the script puts back in between
    has not. Empty: there are none."""
    _, _, some, values = before
    again = out[some]
    if not bool(again.any()):
        return []
    return [not torch.equal(parameter.detach()[some][again], values[again])]
