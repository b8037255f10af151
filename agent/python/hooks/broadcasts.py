"""Predictions that broadcasting compares with the targets of other samples.

Predictions [n, 1] less targets [n] are [n, n], each compared with each; a single
prediction is compared with all. The loss then averages another error, and is least
where all predictions are the same. Kernels of distances to fixed centers have such
shapes, too, and are not errors that a loss adds up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.graph_nodes import inputs, shape
from _traincheck.value_graph import givers_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.row_orders import RowOrders

_MAX_NODES = 256
DIFFERENCE = frozenset(("SubBackward0", "RsubBackward0"))
LAYERS = frozenset(("AddmmBackward0", "ConvolutionBackward0"))
# Between an error and the loss: what grows with its size, weighs, selects and averages.
_SIZES = frozenset(
    f"{name}Backward{number}"
    for name, numbers in {
        "Abs": "0",
        "Add": "01",
        "Cat": "0",
        "Clone": "0",
        "Cosh": "0",
        "Div": "01",
        "Expand": "0",
        "HuberLoss": "0",
        "Index": "0",
        "LinalgVectorNorm": "0",
        "Log": "0",
        "Log1P": "0",
        "MaskedFill": "01",
        "MaskedSelect": "0",
        "Maximum": "0",
        "Mean": "01",
        "Minimum": "0",
        "MseLoss": "0",
        "Mul": "01",
        "Nansum": "0",
        "Neg": "0",
        "Norm": "012",
        "Permute": "0",
        "Pow": "0",
        "ReshapeAlias": "0",
        "Rsub": "1",
        "Select": "0",
        "Slice": "0",
        "SmoothL1Loss": "0",
        "Sqrt": "0",
        "Squeeze": "012",
        "Stack": "0",
        "Sub": "1",
        "Sum": "01",
        "ToCopy": "0",
        "Transpose": "01",
        "UnsafeView": "0",
        "Unsqueeze": "0",
        "View": "0",
        "Where": "0",
    }.items()
    for number in numbers
)


def findings(roots: list[Node], orders: RowOrders) -> tuple[bool | None, bool | None]:
    """(is each prediction compared with all targets, is it because the batch has one
    sample for the model), of differences whose sizes the loss adds up; roots: of
    losses."""
    found: list[bool] = []
    of_one = False
    todo = list(roots)
    seen = set(todo)
    while todo:
        node = todo.pop()
        name = node.name()
        if name in DIFFERENCE:
            compared = _compared(node, orders)
            if compared and _is_of_one_sample(node, orders):
                of_one = True
            elif compared is not None:
                found.append(compared)
        elif name not in _SIZES or not _grows(node):
            continue
        for giver in inputs(node):
            if giver not in seen and len(seen) < _MAX_NODES:
                seen.add(giver)
                todo.append(giver)
    known = any(found) if found else None
    return known, True if of_one else None if known is None else False


def _is_of_one_sample(difference: Node, orders: RowOrders) -> bool:
    """Has a layer made one prediction, and the batch one sample beside its targets?"""
    origins = givers_of(difference)
    alone = all(math.prod(shape(origin) or (0,)) == 1 for origin in origins)
    return bool(origins) and alone and orders.has_one_sample()


def _grows(node: Node) -> bool:
    """Does what it gives grow with what it is given? A kernel of distances falls."""
    exponent = getattr(node, "_saved_exponent", None)
    return not isinstance(exponent, (int, float)) or exponent > 0


def _compared(difference: Node, orders: RowOrders) -> bool | None:
    """Is one prediction, or each one, compared with all targets?

    Predictions [n, 1] against targets [n] give [n, n], each with each, as do
    [n, c, 1, 1] against [n, c]; one
    prediction [1] against [n] stands for all. None: it is no difference between
    what a model computes and what is given.
    """
    givers = inputs(difference)
    if len(givers) != 1 or not givers[0].next_functions:
        return None
    result, given = shape(difference), shape(givers[0])
    if result is None or given is None or len(result) == 0:
        return None
    half = len(result) // 2
    sizes, ones = result[:half], (1,) * half
    twice = sizes == result[half:] and math.prod(sizes) > 1
    if twice and given in (sizes + ones, ones + sizes, sizes):
        return True
    if given == result:
        return False
    alone = math.prod(given) == 1 < math.prod(result)
    return True if alone and _is_of_batch(difference, orders) else None


def _is_of_batch(difference: Node, orders: RowOrders) -> bool:
    """Is a single prediction one of several rows, or compared with a batch's targets?
    The value of one state may be compared with all that was drawn there."""
    origins = givers_of(difference)
    if any(origin.name() not in LAYERS for origin in origins):
        return False
    if all(math.prod(shape(origin) or ()) > 1 for origin in origins):
        return True
    return orders.gives_targets(math.prod(shape(difference) or ()))
