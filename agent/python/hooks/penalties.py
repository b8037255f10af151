"""Penalties of gradients that have no gradient themselves.

autograd.grad without create_graph gives numbers. A penalty or a residual that is
computed of them changes the value of the loss, and nothing that is learned; so does one
of second derivatives of which only the first have a graph. Gradients of a loss, with
which inputs are made harder, are numbers on purpose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import transforms
from _traincheck.graph_nodes import shape
from _traincheck.observing import observe_function
from _traincheck.tensor_marks import TensorMark, has_mark

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
_MOST_GRAPHS = 32  # gradients that are remembered


class Penalties:
    def __init__(self) -> None:
        # Were gradients of inputs taken since the last backward, with a graph?
        self._taken: bool | None = None
        # Those that have a graph. Were gradients of such taken without one the last time?
        # Then a derivative of higher order is a number.
        self._graphs: list[TensorMark] = []
        self._ends_in_numbers = False

    def takes(self, args: Args, kwargs: Kwargs, result: Any) -> None:
        """Called with what autograd gives its engine (outputs, gradients of them,
        retain_graph, create_graph, inputs), and gets."""
        if kwargs.get("accumulate_grad", True) or not torch.is_grad_enabled():
            return  # a backward
        outputs, _, _, graph, inputs = args[:5]
        if not any(map(_is_input, inputs)) or not all(map(_are_scores, outputs)):
            return
        self._taken = bool(self._taken) or bool(graph)
        if any(mark.is_of(output) for mark in self._graphs for output in outputs):
            self._ends_in_numbers = not graph
        if graph and len(self._graphs) < _MOST_GRAPHS:
            self._graphs += [TensorMark(one) for one in result if _has_graph(one)]

    def are_asked(self) -> bool:
        return self._taken is not None

    def backward_begins(self, roots: list[Node]) -> float | None:
        """1: a term of the loss has no gradient; None: nothing tells."""
        taken, self._taken = self._taken, None
        in_numbers, self._ends_in_numbers = self._ends_in_numbers, False
        self._graphs = []
        if taken is None:
            return None
        is_suspect = in_numbers or not taken
        if is_suspect and any(map(_has_constant_term, roots)):
            return 1.0
        return 0.0 if taken else None


def _has_graph(gradient: Any) -> bool:
    is_plain = type(gradient) is torch.Tensor and has_mark(gradient)
    return is_plain and gradient.grad_fn is not None


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
    def takes(args: Args, kwargs: Kwargs, result: Any) -> None:
        if transforms.running():  # their tensors have no storage
            return
        watch.penalties.takes(args, kwargs, result)
        watch.hidden_parts.plain_tensors.takes(args, kwargs)

    observe_function(watch, torch.autograd, "_engine_run_backward", after=takes)
