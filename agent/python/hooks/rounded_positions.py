"""Rotary positions whose angles were rounded, read from a loss's graph.

bfloat16 has 8 bits for a whole number: of the positions beyond 256 only some are left,
and neighbours fall together (float16: beyond 2048). Positions are given in the type of
the model, or autocast computes the angles by a matrix product; the cosines themselves
may be of any type. The first angle is the position itself: its cosines are in the table
by which queries and keys are multiplied, and tell which positions they were computed of.
Cosines that are rounded after they were computed are close to the exact ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, kept

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.rounds_positions"

_LEAST = 264  # places: bfloat16 tells neighbours apart up to 256
_MOST = 8192  # that are looked at
_CLOSE = 0.02  # of cosines in bfloat16
_TYPES = (torch.bfloat16, torch.float16)
_PRODUCT = "MulBackward0"
# Of a copy of the node, that line alone.
LINE = "line_of_places"
_KEPT = ("other", "self", LINE)


def rounds(node: Node) -> bool | None:
    """None: it is no product with cosines of so many places."""
    for line in lines_of(node):
        found = _is_rounded(line.flatten()) if line.is_cpu else None
        if found is not None:
            return found
    return None


def lines_of(node: Node) -> list[torch.Tensor]:
    """The first angle's values, along each dimension that is long enough for places, of
    what multiplies the one thing that needs a gradient."""
    if node.name() != _PRODUCT or len(inputs(node)) != 1:
        return []
    return [line for name in _KEPT for line in _lines(kept(node, name))]


def _lines(table: Any) -> list[torch.Tensor]:
    if type(table) is not torch.Tensor or table.layout != torch.strided:
        return []
    if table.dim() < 2 or table.numel() == 0:
        return []
    table = table.detach()
    if table.is_complex() and not table.is_conj():  # cosines and sines as one number
        table = torch.view_as_real(table)[..., 0]
    if not table.is_floating_point():
        return []
    return [
        _line(table, over)
        for over, size in enumerate(table.shape[:-1])
        if size >= _LEAST
    ]


def _line(table: torch.Tensor, over: int) -> torch.Tensor:
    """Its first elements, in all dimensions but one."""
    for at, size in enumerate(table.shape):
        table = table.narrow(at, 0, min(size, _MOST) if at == over else 1)
    return table


def _is_rounded(line: torch.Tensor) -> bool | None:
    begin = line[:3].tolist()
    if not all(abs(one - math.cos(at)) < _CLOSE for at, one in enumerate(begin)):
        return None
    line = line.double()
    places = torch.arange(len(line), dtype=torch.float64, device="cpu")
    if _are_close(line, places.cos()):
        return False
    if any(_are_close(line, places.to(kind).double().cos()) for kind in _TYPES):
        return True
    return None


def _are_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one - other).abs() < _CLOSE).all())
