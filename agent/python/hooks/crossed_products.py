"""Numbers of samples that are multiplied by those of all samples.

A column [n, 1] times a row [n] is broadcast to [n, n]. Its mean is that of the column
times that of the row: no loss is weighted by what was meant for it, no action by its own
advantage, and the loss still falls. So it is with a table [n, n] that a row and a column
were added to: returns [n] less values [n, 1].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, kept, saved, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    Sizes = tuple[int, ...]

# Name of the scalar.
NAME = "loss.multiplies_crosswise"

_PRODUCTS = frozenset(("MulBackward0", "DivBackward0"))
_SUMS = frozenset(("MeanBackward0", "SumBackward0"))
# What keeps the elements apart from each other.
_ELEMENTWISE = frozenset(
    (
        *("AddBackward0", "ClampBackward0", "ClampBackward1", "ClampMaxBackward0"),
        *("ClampMinBackward0", "MaximumBackward0", "MinimumBackward0"),
        *("NegBackward0", "SubBackward0"),
    )
)
_ADDITIONS = frozenset(("AddBackward0", "SubBackward0"))
_MOST_ON_THE_WAY = 8  # nodes between a sum and a product
_ROWS = (4, 512)  # of a table that is looked at
_ROUNDED = 1e-5  # of its largest element
_VARIES = 1e-2  # of that, at least, in a row and in a column


def multiplies_crosswise(node: Node) -> bool | None:
    """Is each row multiplied by all of a column, in what it adds up? None: it adds up no
    product of one number a sample."""
    if node.name() not in _SUMS:
        return None
    todo = inputs(node)[:1]
    product: bool | None = None
    for _ in range(_MOST_ON_THE_WAY):
        if not todo:
            break
        giver = todo.pop()
        if giver.name() in _PRODUCTS:
            crossed = _is_crossed(giver)
            if crossed:
                return True
            product = crossed if product is None else product
            if not _is_scaled(giver):
                continue
        elif giver.name() not in _ELEMENTWISE or _adds_table(giver):
            continue
        todo += inputs(giver)
    return product


def _adds_table(node: Node) -> bool:
    """Does it add what may have a number for each pair? Slopes of samples times hours
    are compared with what each sample has at each hour."""
    if node.name() not in _ADDITIONS:
        return False
    givers = inputs(node)
    if len(givers) != 2:
        return True  # of what is given, nothing is kept
    whole = shape(node)
    tables = [giver for giver in givers if shape(giver) == whole]
    crossed = [one for one in tables if one.name() in _PRODUCTS and _is_crossed(one)]
    return whole is not None and len(whole) > 1 and len(tables) > len(crossed) > 0


def _is_scaled(product: Node) -> bool:
    """By one number? Others give each pair a weight of its own."""
    sizes = _factors(product)
    return len(sizes) < 2 or any(math.prod(one) == 1 for one in sizes)


def _is_crossed(product: Node) -> bool | None:
    """None: its factors are not one number a sample."""
    sizes, factors = shape(product), _factors(product)
    if sizes is None or len(factors) != 2 or math.prod(sizes) < 2:
        return None
    if _adds_row_and_column(product, sizes, factors):
        return True
    row, column = sorted(factors, key=len)
    if row == column == sizes and len(row) == 1:
        return False
    ones = (1,) * (len(column) - 1)
    is_crossed = len(row) == 1 and len(column) > 1 and column == row + ones
    return True if is_crossed and sizes == column[:-1] + row else None


def _adds_row_and_column(product: Node, whole: Sizes, factors: list[Sizes]) -> bool:
    """Is one number a sample multiplied by a row and a column, added to a table?
    Differences between all of one kind are meant as a table."""
    n = whole[-1]
    one_each = [one for one in factors if one in ((n,), (1, n), (n, 1))]
    if whole != (n, n) or len(one_each) != 1 or product.name() != "MulBackward0":
        return False
    givers = [giver for giver, _ in product.next_functions]
    computed = [giver for giver in givers if giver is not None]
    # Weights of a layer are no numbers of samples.
    if len(computed) != 1 or computed[0].name().endswith("AccumulateGrad"):
        return False
    table = saved(product, "self" if givers[0] is None else "other")
    if table is None or table.shape != whole or not table.is_floating_point():
        return False
    return _ROWS[0] <= n <= _ROWS[1] and _is_of_row_and_column(table.double())


def _is_of_row_and_column(table: torch.Tensor) -> bool:
    row, column = table[:1], table[:, :1]
    largest = float(table.abs().max())
    rest = (table - row - column + table[0, 0]).abs().max()
    if not float(rest) <= _ROUNDED * largest < math.inf:
        return False
    ranges = [float(one.max() - one.min()) for one in (row, column)]
    # Of rows x and columns y: that of x + x and x - x.
    kinds = (table - table.T, table + table.T)
    is_of_one = any(float(one.abs().max()) <= _VARIES * largest for one in kinds)
    return min(ranges) > _VARIES * largest and not is_of_one


def _factors(product: Node) -> list[Sizes]:
    """Shapes of what it multiplies: computed ones, and those that are given."""
    found = []
    givers = [giver for giver, _ in product.next_functions]
    for giver, name in zip(givers, ("self", "other")):
        sizes = shape(giver) if giver is not None else None
        given = kept(product, name) if sizes is None else None
        if isinstance(given, torch.Tensor):
            sizes = tuple(given.shape)
        if sizes is not None:
            found.append(sizes)
    return found
