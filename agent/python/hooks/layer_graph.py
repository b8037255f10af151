"""What a loss's graph says of layers: several that follow each other without anything
between them that is not linear compute no more than one of them could.

A layer that is narrower than what it is given and than what follows is there for its
width (adapters, projections, components), and not meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.findings import Findings
from _traincheck.graph_nodes import (
    LAYER_PRODUCTS,
    Graph,
    inputs,
    saved_shape,
    shape,
    walk,
)
from _traincheck.value_graph import SAME_VALUES, values_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Name of the scalar.
NAME = "loss.layers_are_linear"

_MAX_NODES = 1024
_MAX_LAYERS = 32
_LOSSES = frozenset(
    (
        "BinaryCrossEntropyWithLogitsBackward0",
        "HuberLossBackward0",
        "LogSoftmaxBackward0",
        "MseLossBackward0",
        "SmoothL1LossBackward0",
    )
)
# Layers, and what of them has the sizes [.., what they are given, ..].
_LAYERS = {
    "AddmmBackward0": "mat1",
    "ConvolutionBackward0": "input",
    "MmBackward0": "self",
}
_PARAMETER = "torch::autograd::AccumulateGrad"
_LINEAR = (
    SAME_VALUES
    | frozenset(_LAYERS)
    | {
        "AddBackward0",
        "AdaptiveAvgPool2DBackward0",
        "AvgPool2DBackward0",
        "DivBackward0",
        "MeanBackward0",
        "MeanBackward1",
        "NativeDropoutBackward0",
        "SelectBackward0",
        "SubBackward0",
        "SumBackward1",
        _PARAMETER,
    }
)


def findings(roots: list[Node]) -> Findings:
    found = Findings()
    for node in walk(roots, _MAX_NODES):
        if node.name() in _LOSSES:
            found.add(NAME, _are_linear(inputs(node)[:1]))
    return found


def _are_linear(predictions: list[Node]) -> bool | None:
    """None: there are no two layers, or the graph is too large."""
    graph = Graph(predictions, _MAX_NODES)
    if len(graph.nodes) >= _MAX_NODES:
        return None
    layers = [node for node in graph.nodes if node.name() in _LAYERS]
    if not 1 < len(layers) <= _MAX_LAYERS:
        return None
    if not all(map(_is_linear, graph.nodes)):
        return False
    for layer in layers:
        following = graph.reached_from(layer) - {layer}
        if any(_is_wide(layer, other) for other in layers if other in following):
            return True
    return None


def _is_linear(node: Node) -> bool:
    # Of a product, one factor alone may come from a layer.
    if node.name() in LAYER_PRODUCTS:
        return len(_computed(node)) < 2
    return node.name() in _LINEAR or (
        node.name() == "MulBackward0" and len(inputs(node)) == 1
    )


def _computed(product: Node) -> list[Node]:
    """Its factors that are no parameters."""
    factors = [giver for giver, _ in product.next_functions[-2:] if giver is not None]
    return [one for one in values_of(factors) if one.name() != _PARAMETER]


def _is_wide(layer: Node, last: Node) -> bool:
    """Could what the last one gives be computed of what the first one is given, by a
    layer of its own without more parameters?"""
    given, between, result = _given(layer), _width(layer), _width(last)
    if given is None or between is None or result is None:
        return False
    return between >= min(given, result)


def _given(layer: Node) -> int | None:
    return _channels(layer, saved_shape(layer, _LAYERS[layer.name()]))


def _width(layer: Node) -> int | None:
    return _channels(layer, shape(layer))


def _channels(layer: Node, sizes: tuple[int, ...] | None) -> int | None:
    place = 1 if layer.name() == "ConvolutionBackward0" else -1
    return sizes[place] if sizes is not None and len(sizes) > 1 else None
