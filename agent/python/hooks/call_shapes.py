"""Does a call, as it is written, give what a node of the graph has computed?

Numbers that stand in the source say over which dimension something is taken, or which
sizes a view has. What is computed may be any number.
"""

from __future__ import annotations

import ast
from typing import NamedTuple, TYPE_CHECKING

from _traincheck.graph_nodes import (
    dimension,
    integer,
    kept,
    reduced,
    saved_shape,
    shape,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.call_kinds import Kind


class Shape(NamedTuple):
    sizes: tuple[int, ...] | None  # of the result; None: not known
    # The dimensions that it was taken over, from 0 on, of how many; empty: of all.
    over: frozenset[int] | None
    dimensions: int

    @staticmethod
    def of(node: Node) -> Shape:
        sizes = shape(node)
        if sizes is not None and integer(node, "dim") is not None:
            over = dimension(node, sizes)
            known = None if over is None else frozenset((over,))
            return Shape(sizes, known, len(sizes))
        given = kept(node, "self_sym_sizes") or saved_shape(node, "self")
        if not isinstance(given, (tuple, list)):
            return Shape(sizes, None, 0)
        if kept(node, "dim") is None:
            return Shape(sizes, frozenset(), len(given))
        several = reduced(node) or _reduced_of(node, len(given))
        return Shape(sizes, frozenset(several), len(given))


def _reduced_of(node: Node, dimensions: int) -> set[int]:
    """As reduced(), of a node that keeps what it was given."""
    over = kept(node, "dim")
    numbers = over if isinstance(over, (tuple, list)) else ()
    # Those below 0 are given as unsigned numbers.
    small = (one if one < 2**63 else one - 2**64 for one in map(int, numbers))
    return {one % dimensions for one in small} if dimensions else set()


def fits(call: ast.Call, is_method: bool, kind: Kind, shape: Shape | None) -> bool:
    """is_method: is it called on what it is taken of, or is it a module?"""
    if shape is None:
        return True
    if kind.sizes:
        return _fits_sizes(call, shape.sizes)
    if kind.dim is None or shape.over is None:
        return True
    given = _argument(call, kind.dim - is_method)
    if given is None:
        return not kind.whole or not shape.over
    numbers = _numbers(given)
    if numbers is None or not shape.dimensions:
        return True
    return {one % shape.dimensions for one in numbers} == shape.over


def _argument(call: ast.Call, place: int) -> ast.expr | None:
    """The dimension; None: it is not given."""
    for word in call.keywords:
        if word.arg in ("dim", "axis"):
            return word.value
    return call.args[place] if len(call.args) > place else None


def _numbers(value: ast.expr) -> list[int] | None:
    """None: they are computed."""
    if isinstance(value, (ast.List, ast.Tuple)):
        each = [_numbers(one) for one in value.elts]
        return [n for one in each for n in one or ()] if None not in each else None
    sign = 1
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        sign, value = -1, value.operand
    if not isinstance(value, ast.Constant) or type(value.value) is not int:
        return None
    return [sign * value.value]


def _fits_sizes(call: ast.Call, sizes: tuple[int, ...] | None) -> bool:
    """Of x.view(8, -1)."""
    given = call.args
    is_list = len(given) < 2 or any(isinstance(one, ast.Starred) for one in given)
    if sizes is None or is_list or not isinstance(call.func, ast.Attribute):
        return True
    if len(given) != len(sizes):
        return False
    known = [(_numbers(one) or [-1])[0] for one in given]
    return all(one in (-1, size) for one, size in zip(known, sizes))
