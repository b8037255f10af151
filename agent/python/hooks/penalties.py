"""Penalties of gradients that have no gradient themselves.

autograd.grad without create_graph gives numbers. A penalty or a residual that is
computed of them changes the value of the loss, and nothing that is learned. Gradients of
a loss, with which inputs are made harder, are numbers on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import shape
from _traincheck.observing import observe_function

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

# Name of the scalar.
NAME = "loss.penalty_without_graph"

_SUMS = frozenset(("AddBackward0", "SubBackward0"))
# Between the terms of a loss and the loss.
_FACTORS = frozenset(("DivBackward0", "MulBackward0", "NegBackward0", "RsubBackward1"))
_MOST = 32  # nodes


class Penalties:
    def __init__(self) -> None:
        # Were gradients of inputs taken since the last backward, with a graph?
        self._taken: bool | None = None

    def takes(self, args: Args, kwargs: Kwargs) -> None:
        """Called with what autograd gives its engine: outputs, gradients of them,
        retain_graph, create_graph, inputs."""
        if kwargs.get("accumulate_grad", True) or not torch.is_grad_enabled():
            return  # a backward
        outputs, _, _, graph, inputs = args[:5]
        if any(map(_is_input, inputs)) and all(map(_are_scores, outputs)):
            self._taken = bool(self._taken) or bool(graph)

    def are_asked(self) -> bool:
        return self._taken is not None

    def backward_begins(self, roots: list[Node]) -> float | None:
        """1: a term of the loss has no gradient; None: nothing tells."""
        taken, self._taken = self._taken, None
        if taken is None or taken:
            return None if taken is None else 0.0
        return 1.0 if any(map(_has_constant_term, roots)) else None


def _is_input(tensor: Any) -> bool:
    plain = type(tensor) is torch.Tensor
    return plain and bool(tensor.requires_grad)


def _are_scores(outputs: Any) -> bool:
    """Several numbers, or their sum, and no loss?"""
    if type(outputs) is not torch.Tensor or outputs.grad_fn is None:
        return False
    return outputs.numel() > 1 or str(outputs.grad_fn.name()) == "SumBackward0"


def _has_constant_term(root: Node) -> bool:
    todo = [(root, False)]
    for _ in range(_MOST):
        if not todo:
            break
        node, is_added = todo.pop()
        givers = [giver for giver, _ in node.next_functions]
        if node.name() in _SUMS:
            # Python's sum() of a list begins with 0, to which further terms are added.
            if None in givers and not (is_added and givers[-1] is None):
                return True
            is_added = True
        elif node.name() not in _FACTORS:
            continue
        numbers = [one for one in givers if one is not None and shape(one) == ()]
        todo += [(number, is_added) for number in numbers]
    return False


def install(watch: Watch) -> None:
    def takes(args: Args, kwargs: Kwargs) -> None:
        watch.penalties.takes(args, kwargs)

    observe_function(watch, torch.autograd, "_engine_run_backward", takes)
