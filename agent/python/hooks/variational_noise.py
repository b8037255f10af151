"""Noise of a variational encoder that is scaled by the variance.

z = mean + noise * deviation. What the encoder gives is mostly the logarithm of the
variance, as its divergence from the prior says: exp(log_variance) stands there by
itself. The noise then takes exp(log_variance / 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.findings import Findings
from _traincheck.graph_nodes import Graph, factor, inputs, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.noise_by_variance"

_EXPONENTIAL = "ExpBackward0"
_TERMS = frozenset(("AddBackward0", "RsubBackward1", "SubBackward0"))
_SCALED = frozenset(("DivBackward0", "MulBackward0"))
_LEAST = 8  # numbers of noise
_MOST = 1 << 20

_Value = tuple["Node", int]  # a node's result of this place


def findings(graph: Graph) -> Findings:
    exponentials = [node for node in graph.nodes if node.name() == _EXPONENTIAL]
    # What is a term of a sum itself, and with its exponential.
    variances = {
        _exponent(node)
        for node in exponentials
        if _is_term(graph, (node, 0)) and _is_term(graph, _exponent(node))
    }
    found = Findings()
    for node in exponentials:
        if not any(map(_is_noise, graph.takers(node))):
            continue
        exponent = _exponent(node)
        if exponent in variances:
            found.add(NAME, True)
        elif exponent[0].name() in _SCALED and len(inputs(exponent[0])) == 1:
            halved = [one for one in exponent[0].next_functions if one[0] is not None]
            found.add(NAME, False if halved[0] in variances else None)
    return found


def _exponent(exponential: Node) -> _Value:
    node, place = exponential.next_functions[0]
    assert node is not None  # it would have no exponential in the graph
    return node, place


def _is_term(graph: Graph, value: _Value) -> bool:
    return any(
        taker.name() in _TERMS and value in taker.next_functions
        for taker in graph.takers(value[0])
    )


def _is_noise(product: Node) -> bool:
    """Does it multiply by numbers of both signs that have no gradient?"""
    noise = factor(product)
    if noise is None or not _LEAST <= noise.numel() <= _MOST:
        return False
    if noise.is_complex() or tuple(noise.shape) != shape(product):
        return False
    return bool((noise > 0).any()) and bool((noise < 0).any())
