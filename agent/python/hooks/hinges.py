"""Losses that are 0, but for numbers that are added to them.

A hinge that no sample exceeds (a soft boundary, a margin that all keep) leaves nothing
to learn, also where the loss has a further term without a gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import inputs, kept, saved

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

_MOST = 16  # nodes
# What averages, weighs and adds up what the elements lose.
_REDUCTIONS = frozenset(
    f"{name}Backward{number}"
    for name in ("Add", "Div", "Mean", "Mul", "Sub", "Sum")
    for number in "01"
)


def all_rest(loss: torch.Tensor) -> bool:
    """Is each of its terms that has a gradient a hinge, and 0 everywhere?"""
    todo = [] if loss.grad_fn is None else [loss.grad_fn]
    found = False
    for _ in range(_MOST):
        if not todo:
            return found
        node = todo.pop()
        if node.name() in _REDUCTIONS:
            todo.extend(inputs(node))
        elif _rests(node):
            found = True
        else:
            return False
    return False


def _rests(node: Node) -> bool:
    if node.name() == "ReluBackward0":
        result = saved(node, "result")
        return result is not None and not bool(result.any())
    if node.name() in ("ClampMinBackward0", "ClampBackward1"):
        given, least = saved(node, "self"), kept(node, "min")
        lies_below = given is not None and not bool((given > 0).any())
        return lies_below and isinstance(least, (int, float)) and least == 0
    return False
