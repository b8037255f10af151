"""Terms of a loss that are new tensors, made of numbers.

`torch.tensor(values, requires_grad=True)` has the values of what was computed and none
of its graph: backward reaches the new tensor and ends there. Another term of the loss
has a graph, so that backward raises nothing, and what that term reaches is trained.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import walk
from _traincheck.holds import parameters_of
from _traincheck.places import place
from _traincheck.stray_terms import LEAF, terms_of
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from torch.autograd.graph import Node
    from traincheck_core import Core

    from _traincheck.places import Place

# Name of the scalar.
NAME = "loss.term_without_graph"

_FIRST = 4  # backwards of a place in the code that are looked at
_EVERY = 64  # backwards later:
_AGAIN = 2  # so many in a row once more
_MAX_PLACES = 64
_MAX_NODES = 1024  # of a term; a larger one was computed


class NewTerms:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._backwards: collections.Counter[Place] = collections.Counter()
        # The new tensors among the terms, at the last backward of a place.
        self._before: dict[Place, list[TensorMark]] = {}

    def asks(self) -> Place | None:
        """Called once a backward: where it is, if its loss is looked at."""
        here = place(self._core)
        if here not in self._backwards and len(self._backwards) == _MAX_PLACES:
            return None
        number = self._backwards[here]
        self._backwards[here] += 1
        return here if number < _FIRST or number % _EVERY < _AGAIN else None

    def backward_begins(
        self, here: Place, roots: list[Node], optimizers: list[torch.optim.Optimizer]
    ) -> float | None:
        """1: a term was a new tensor, at the last backward of this place, too, where it
        was another one; None: not known, or the loss has one term."""
        terms = terms_of(roots)
        if len(terms) < 2:
            return None
        leaves = [_leaves(term) for term in terms]
        alone = [tensors for tensors in leaves if tensors is not None]
        held = {id(one) for optimizer in optimizers for one in parameters_of(optimizer)}
        new = [
            tensor
            for tensors in alone
            if all(_is_plain(one) and id(one) not in held for one in tensors)
            for tensor in tensors
            if sum(any(one is tensor for one in others) for others in alone) == 1
        ]
        if len(new) == sum(map(len, alone)) and len(alone) == len(leaves):
            return None  # nothing is trained at all
        before = self._before.get(here)
        self._before[here] = list(map(TensorMark, new))
        if not new:
            return 0.0
        if not before:
            return None
        return float(not any(mark.is_of(one) for one in new for mark in before))


def _leaves(term: Node) -> list[torch.Tensor] | None:
    """What it was computed of; None: too much to tell."""
    nodes = list(walk([term], _MAX_NODES))
    if len(nodes) == _MAX_NODES:
        return None
    variables = (
        getattr(node, "variable", None) for node in nodes if node.name() == LEAF
    )
    return [one for one in variables if one is not None]


def _is_plain(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and has_mark(tensor)
