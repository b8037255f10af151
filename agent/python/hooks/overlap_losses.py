"""Overlaps (Dice, Jaccard, Tversky) that are computed of scores.

2 sum(p t) / (sum p + sum t) is a share of what two masks cover if p are probabilities.
Scores of any sign make it any number: it pulls them towards 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import (
    PERMUTATIONS,
    VIEWS,
    factor,
    inputs,
    is_of_rows,
    saved,
    walk,
)
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.overlap_of_scores"

_SUMS = frozenset(("SumBackward0", "SumBackward1"))
# Sums of products in one call: einsum("bchw,bchw->bc") makes one product of a row and a
# column for each number that it returns. Names of what they keep of both.
_DOT, _ROWS_BY_COLUMNS = "DotBackward0", "BmmBackward0"
_KEPT = {_DOT: ("self", "tensor"), _ROWS_BY_COLUMNS: ("self", "mat2")}
# Between the sums and their quotient: a small number or a choice against zeros, weights.
_PARTS = (
    frozenset(f"{name}Backward0" for name in ("Add", "ClampMin", "Mul", "Sub", "Where"))
    | PERMUTATIONS
    | VIEWS
)
_LAYERS = frozenset(("AddmmBackward0", "ConvolutionBackward0", "MmBackward0"))
_RESIZED = "Upsample"
_PROBABILITIES = frozenset(
    (
        "ClampBackward1",
        "ExpBackward0",
        "HardsigmoidBackward0",
        "SigmoidBackward0",
        "SoftmaxBackward0",
    )
)
_ADDED = frozenset(("AddBackward0", "SubBackward0"))
_SQUARE = "PowBackward0"
_ROOTS = frozenset(("LinalgVectorNormBackward0", "PowBackward0", "SqrtBackward0"))
_MOST = 32  # nodes of the quotient
_READ = 1 << 16  # elements of a mask


def is_of_scores(node: Node) -> bool | None:
    """None: it is no quotient of such sums."""
    if node.name() != "DivBackward0" or len(node.next_functions) != 2:
        return None
    (above, _), (below, _) = node.next_functions
    if above is None or below is None:
        return None
    predicted = [one for one in map(_covered, _sums(above)) if one is not None]
    if len(predicted) != 1 or not _adds(below, predicted[0]):
        return None
    if below.name() in _ROOTS or _is_length(below):
        return None
    origins = {origin.name() for origin in _origins(predicted[0])}
    if origins and origins <= _LAYERS:
        return True
    return False if origins and origins <= _PROBABILITIES else None


def _sums(node: Node) -> list[Node]:
    """Those that a part of the quotient is made of."""
    found, todo = [], [node]
    for _ in range(_MOST):
        if not todo:
            break
        one = todo.pop()
        if one.name() in _SUMS or _adds_products(one):
            found.append(one)
        elif one.name() in _PARTS or one is node:
            todo.extend(inputs(one))
    return found


def _adds_products(node: Node) -> bool:
    """Is it the sum of the products of two tensors, and no product of matrices?"""
    is_product = node.name() == _ROWS_BY_COLUMNS and is_of_rows(node)
    return is_product or bool(node.name() == _DOT)


def _covered(whole: Node) -> Node | None:
    """What is multiplied by a mask of zeros and ones, and added up; None: nothing."""
    products = [whole] if whole.name() in _KEPT else values_of(inputs(whole))
    for product in products:
        mask = _factor(product)
        if mask is None or mask.is_complex():
            continue
        few = mask.flatten()[:_READ]
        return inputs(product)[0] if bool(((few == 0) | (few == 1)).all()) else None
    return None


def _factor(product: Node) -> torch.Tensor | None:
    """As graph_nodes.factor(), of a sum of products, too."""
    if product.name() not in _KEPT:
        return factor(product)
    if len(inputs(product)) != 1:
        return None
    is_first = product.next_functions[0][0] is not None
    return saved(product, _KEPT[product.name()][is_first])


def _adds(node: Node, predicted: Node) -> bool:
    """Are the predictions, their squares or their complements added up there?"""
    wanted = set(values_of([predicted]))
    return any(
        value in wanted for whole in _sums(node) for value in walk([whole], _MOST)
    )


def _is_length(below: Node) -> bool:
    """Is it the squared length of the predictions, to which no mask is added? Cosines
    and projections have it below."""
    node = below
    # The sum of a mask has no gradient: nothing shows but that something is added.
    for _ in range(_MOST):
        givers = values_of(inputs(node)[:1])
        if node.name() in _SUMS:
            return [giver.name() for giver in givers] == [_SQUARE]
        if len(inputs(node)) != 1 or not givers or node.name() in _ADDED:
            return False
        node = givers[0]
    return False


def _origins(predicted: Node) -> list[Node]:
    """What has computed the predictions, whatever size they have been given since."""
    found, todo = [], values_of([predicted])
    for _ in range(_MOST):
        if not todo:
            break
        node = todo.pop()
        if node.name().startswith(_RESIZED):
            todo.extend(values_of(inputs(node)))
        else:
            found.append(node)
    return found
