"""What the noise of a variational encoder is scaled by, and what its divergence takes.

z = mean + noise * deviation. What the encoder gives is mostly the logarithm of the
variance, as its divergence from the prior says: exp(log_variance) stands there by
itself. The noise then takes exp(log_variance / 2). Where one takes for the deviation
what the other takes for a logarithm, the divergence pulls to another prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck import divergence_scales
from _traincheck.graph_nodes import Graph, factor, inputs, shape

if TYPE_CHECKING:
    from _traincheck.findings import Findings
    from torch.autograd.graph import Node

# Names of the scalars.
NAME = "loss.noise_by_variance"
CONFUSED = "loss.variance_confused"

_EXPONENTIAL = "ExpBackward0"
_TERMS = frozenset(("AddBackward0", "RsubBackward1", "SubBackward0"))
_SCALED = frozenset(("DivBackward0", "MulBackward0"))
_LOGARITHM = "LogBackward0"
# A small number is added, or a limit set, before the logarithm.
_BETWEEN = frozenset(("AddBackward0", "ClampBackward1", "ClampMinBackward0"))
_TOTALS = frozenset(
    f"{name}Backward{number}" for name in ("Mean", "Sum") for number in "01"
)
_MOST_ADDED = 8  # constants and factors that are gone through
_MOST_BETWEEN = 3  # nodes from the square to the logarithm
_LEAST = 8  # numbers of noise
_MOST = 1 << 20

_Value = tuple["Node", int]  # a node's result of this place


def findings(graph: Graph) -> Findings:
    exponentials = [node for node in graph.nodes if node.name() == _EXPONENTIAL]
    # What is a term of a sum itself, and with its exponential.
    terms = [
        node
        for node in exponentials
        if _is_term(graph, (node, 0)) and _is_term(graph, _exponent(node))
    ]
    variances = set(map(_exponent, terms))
    found = divergence_scales.findings(graph, terms)
    for node in exponentials:
        if not any(map(_is_noise, graph.takers(node))):
            continue
        found.at = node
        exponent = _exponent(node)
        halved = _halved(exponent)
        if exponent in variances:
            found.add(NAME, True)
        elif halved is not None:
            found.add(NAME, False if halved in variances else None)
            if halved in variances:
                found.add(CONFUSED, False)
            elif _is_logged_as_deviation(graph, halved):
                found.add(CONFUSED, True)
    for value in variances:
        found.add(CONFUSED, True if _scales_noise(graph, value) else None)
    return found


def _exponent(exponential: Node) -> _Value:
    node, place = exponential.next_functions[0]
    assert node is not None  # it would have no exponential in the graph
    return node, place


def _halved(exponent: _Value) -> _Value | None:
    """Of what is it a half, or another share? None: it is none."""
    if exponent[0].name() not in _SCALED or len(inputs(exponent[0])) != 1:
        return None
    given = [(node, place) for node, place in exponent[0].next_functions if node]
    return given[0]


def _is_logged_as_deviation(graph: Graph, value: _Value) -> bool:
    """Is the logarithm of its square taken?"""
    squares = [taker for taker in graph.takers(value[0]) if _is_square(taker, value)]
    for _ in range(_MOST_BETWEEN):
        takers = [taker for square in squares for taker in graph.takers(square)]
        if any(taker.name() == _LOGARITHM for taker in takers):
            return True
        squares = [taker for taker in takers if taker.name() in _BETWEEN]
    return False


def _is_square(node: Node, value: _Value) -> bool:
    if node.name() == "PowBackward0":
        exponent: object = getattr(node, "_saved_exponent", None)
        return exponent == 2
    return node.name() == "MulBackward0" and set(node.next_functions) == {value}


def _scales_noise(graph: Graph, value: _Value) -> bool:
    takers = graph.takers(value[0])
    return any(value in one.next_functions and _is_noise(one) for one in takers)


def _is_term(graph: Graph, value: _Value) -> bool:
    """Is it added to something else that is computed? A constant that is added to it
    leaves it what it is: the sum with it counts."""
    todo = [value]
    for _ in range(_MOST_ADDED):
        if not todo:
            break
        node, place = one = todo.pop()
        for taker in graph.takers(node):
            if one not in taker.next_functions:
                continue
            if taker.name() in _TERMS and len(inputs(taker)) == 2:
                return True
            if taker.name() in _TOTALS:
                return True
            if taker.name() in _TERMS or _is_scaled(taker):
                todo.append((taker, 0))
    return False


def _is_scaled(taker: Node) -> bool:
    """By one number, or by -1?"""
    if taker.name() == "NegBackward0":
        return True
    scale = factor(taker)
    return scale is not None and scale.numel() == 1


def _is_noise(product: Node) -> bool:
    """Does it multiply by numbers of both signs that have no gradient?"""
    noise = factor(product)
    if noise is None or not _LEAST <= noise.numel() <= _MOST:
        return False
    if noise.is_complex() or tuple(noise.shape) != shape(product):
        return False
    return bool((noise > 0).any()) and bool((noise < 0).any())
