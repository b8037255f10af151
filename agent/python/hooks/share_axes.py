"""log_softmax over the samples, in losses that weigh it by shares of the classes.

    kl_div((student / T).log_softmax(0), teacher.softmax(1))
    -(soft_labels * log_softmax(scores, dim=0)).sum(1).mean()

The shares of a sample add up to 1 over the classes, those that log_softmax compares over
the other dimension. Where the shares run over the samples too (both were given dim=0), the
same loss has to say which dimension the classes have: by a cross entropy of the same
scores. As many samples as classes may be pairs, of which each is looked for among the
others; they are not asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import NLL, dimension, factor, inputs, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.findings import Findings

_LOG_SOFTMAX = "LogSoftmaxBackward0"
_PRODUCT = "MulBackward0"
_SCALES = frozenset((_PRODUCT, "DivBackward0"))
_LAYER = "AddmmBackward0"
_DEPTH = 8
_MAX_SHARES = 1 << 20  # elements that are read


class ShareAxes:
    """Of one loss."""

    def __init__(self) -> None:
        self._right = False
        self._wrong: Node | None = None
        # Layers whose scores are compared over the classes: by a cross entropy, and with
        # shares; those compared over the samples, with shares of these.
        self._entropies: set[Node] = set()
        self._classes: set[Node] = set()
        self._samples: dict[Node, Node] = {}  # -> log_softmax

    def look(self, node: Node) -> None:
        name = node.name()
        if name in NLL:
            for giver in inputs(node)[:1]:
                if _runs_over(giver) == 1:
                    self._entropies.update(_layer_of(giver))
        elif name == _PRODUCT:
            givers = inputs(node)
            over = _runs_over(givers[0]) if len(givers) == 1 else None
            if over is not None:
                self._weighs(node, givers[0], over)

    def say(self, name: str, found: Findings) -> None:
        """Called after the last node."""
        wrong = self._wrong
        for layer, compared in self._samples.items():
            # Scores that are compared over both may be so on purpose.
            if layer in self._entropies and layer not in self._classes:
                wrong = wrong or compared
        found.at = wrong
        if wrong is not None or self._right:
            found.add(name, wrong is not None)

    def _weighs(self, product: Node, compared: Node, over: int) -> None:
        shares = factor(product)
        if shares is None or shares.shape != shape(compared):
            return
        if shares.numel() > _MAX_SHARES or not shares.is_floating_point():
            return
        if not bool((shares >= 0).all()):
            return
        of_classes, of_samples = _add_up(shares, 1), _add_up(shares, 0)
        if over == 1:
            self._classes.update(_layer_of(compared))
            self._right = self._right or of_classes
        elif of_classes and not of_samples:
            self._wrong = compared
        elif of_samples:
            self._samples.update(dict.fromkeys(_layer_of(compared), compared))


def _runs_over(node: Node) -> int | None:
    """The dimension of a log_softmax of one score for each sample and class."""
    sizes = shape(node) if node.name() == _LOG_SOFTMAX else None
    if sizes is None or len(sizes) != 2 or sizes[0] == sizes[1] or min(sizes) < 2:
        return None
    return dimension(node, sizes)


def _layer_of(compared: Node) -> set[Node]:
    """That gives its scores, as far as these are only scaled."""
    node = compared
    for _ in range(_DEPTH):
        givers = inputs(node)
        if len(givers) != 1:
            break
        node = givers[0]
        if node.name() == _LAYER:
            return {node}
        if node.name() not in _SCALES:
            break
    return set()


def _add_up(shares: torch.Tensor, over: int) -> bool:
    whole = shares.double().sum(over)
    return bool(torch.allclose(whole, whole.new_ones(()), atol=1e-4))
