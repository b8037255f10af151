"""Divergences of distributions, written by hand or by kl_div, as graphs of losses have
them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, saved
from _traincheck.value_graph import givers_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_SOFTMAX = "SoftmaxBackward0"
_LOG_SOFTMAX = "LogSoftmaxBackward0"
# What averages, weighs and adds up the elements of a loss.
_REDUCTIONS = frozenset(
    f"{name}Backward{number}"
    for name in ("Add", "Div", "Mean", "Mul", "Sum")
    for number in "01"
)
# The sum and the mean of all elements.
_WHOLE = frozenset(("MeanBackward0", "SumBackward0"))
_MAX_NODES = 256
_MAX_SHARES = 1 << 20  # elements of a distribution that are read

# Names of the scalars.
OF_PROBABILITIES = "loss.kl_of_probabilities"
KL_REVERSED = "loss.kl_of_target"


def is_of_probabilities(roots: list[Node]) -> bool | None:
    """Is `target log(target) - target input` added up where input is a softmax?

    The first term has no gradient where the target is given. None: it is no such
    sum, or it cannot be read.
    """
    todo = [(root, "") for root in roots]
    for _ in range(_MAX_NODES):
        if not todo:
            break
        node, taker = todo.pop()
        name = node.name()
        if name in _REDUCTIONS:
            todo.extend((giver, name) for giver in inputs(node))
        elif name == "SubBackward0" and len(node.next_functions) == 2:
            (entropy, _), (product, _) = node.next_functions
            if entropy is not None or product is None:
                continue
            if product.name() == "MulBackward0" and _weighs_by_shares(product):
                # `target - target input` is what is missing at the right class.
                if taker not in _WHOLE and _are_of_one_class(product):
                    continue
                origins = {giver.name() for giver in givers_of(product)}
                if origins in ({_SOFTMAX}, {_LOG_SOFTMAX}):
                    return origins == {_SOFTMAX}
    return None


def _are_of_one_class(product: Node) -> bool:
    """Are the shares by which it weighs 0 and 1 alone?"""
    shares = saved(product, "self")
    return shares is not None and bool(((shares == 0) | (shares == 1)).all())


def is_of_target(difference: Node) -> bool | None:
    """Of kl_div, `target log(target) - target input`: does the target alone need a
    gradient? None: it is no such difference."""
    following = difference.next_functions
    if len(following) != 2 or following[1][0] is None:
        return None
    (entropy, _), (product, _) = following
    if product.name() != "MulBackward0" or len(product.next_functions) != 2:
        return None
    (target, _), (given, _) = product.next_functions
    if entropy is None:
        is_kl = target is None and given is not None and _weighs_by_shares(product)
        return False if is_kl else None
    if entropy.name() != "XlogyBackward0" or target is None:
        return None
    return given is None


def _weighs_by_shares(product: Node) -> bool:
    """Is what it multiplies by a distribution: none below 0, 1 in all?"""
    given = saved(product, "self")
    if given is None or given.dim() == 0 or given.is_complex():
        return False
    if given.numel() > _MAX_SHARES:
        return False
    whole = given.sum(-1)
    return bool((given >= 0).all()) and bool(torch.allclose(whole, whole.new_ones(())))
