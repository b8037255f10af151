"""Overlaps (Dice, Jaccard, Tversky) that are computed of scores.

2 sum(p t) / (sum p + sum t) is a share of what two masks cover if p are probabilities.
Scores of any sign make it any number: it pulls them towards 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import factor, inputs, walk
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.overlap_of_scores"

_SUMS = frozenset(("SumBackward0", "SumBackward1"))
# Between the sums and their quotient: a small number against zeros, weights.
_PARTS = frozenset(
    ("AddBackward0", "MulBackward0", "ClampMinBackward0", "SubBackward0")
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
        if one.name() in _SUMS:
            found.append(one)
        elif one.name() in _PARTS or one is node:
            todo.extend(inputs(one))
    return found


def _covered(whole: Node) -> Node | None:
    """What is multiplied by a mask of zeros and ones, and added up; None: nothing."""
    for product in values_of(inputs(whole)):
        mask = factor(product)
        if mask is None or mask.is_complex():
            continue
        few = mask.flatten()[:_READ]
        return inputs(product)[0] if bool(((few == 0) | (few == 1)).all()) else None
    return None


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
