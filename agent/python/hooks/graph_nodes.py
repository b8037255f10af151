"""Nodes of autograd's graphs."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from torch.autograd.graph import Node

# Losses of log-probabilities, by the numbers of classes.
NLL = frozenset(("NllLossBackward0", "NllLoss2DBackward0"))
# Losses of predictions that are numbers.
ERRORS = frozenset(("HuberLossBackward0", "MseLossBackward0", "SmoothL1LossBackward0"))
# What changes sizes, and neither values nor their order.
VIEWS = frozenset(("ReshapeAliasBackward0", "UnsafeViewBackward0", "ViewBackward0"))
PERMUTATIONS = frozenset(("PermuteBackward0", "TransposeBackward0"))
SOFTMAX = frozenset(("SoftmaxBackward0", "SafeSoftmaxBackward0"))
# Products of matrices; of what a layer is given and its weights.
PRODUCTS = frozenset(("BaddbmmBackward0", "BmmBackward0", "MmBackward0"))
LAYER_PRODUCTS = frozenset(("AddmmBackward0", "MmBackward0"))
# How the names of torch's own attentions begin, by the device that they are for.
FUSED_ATTENTION = "ScaledDotProduct"

# Once a forward has packed what it saves (checkpointing, offloading), unpacking would
# run the user's code, or compute a region again.
_packed = False


def tensors_are_packed() -> None:
    """From now on no saved tensor is read."""
    global _packed
    _packed = True


def inputs(node: Node) -> list[Node]:
    """Nodes of what it was given, as far as they need a gradient."""
    return [following for following, _ in node.next_functions if following is not None]


def walk(roots: list[Node], most: int) -> Iterator[Node]:
    """The nearest first."""
    seen = set(roots)
    todo = collections.deque(roots)
    while todo:
        node = todo.popleft()
        yield node
        for following in inputs(node):
            if following not in seen and len(seen) < most:
                seen.add(following)
                todo.append(following)


class Graph:
    """What led to the roots: the nearest nodes first, at most so many."""

    def __init__(self, roots: list[Node], most: int) -> None:
        self.nodes: list[Node] = []
        self._takers: dict[Node, list[Node]] = {}  # node -> what it was given to
        for node in walk(roots, most):
            self.nodes.append(node)
            for giver in inputs(node):
                self._takers.setdefault(giver, []).append(node)

    def takers(self, node: Node) -> list[Node]:
        return self._takers.get(node, [])

    def taken_on(
        self, start: Node, goes_through: Callable[[Node], bool], most: int
    ) -> Iterator[Node]:
        """What it was given to, and what that was given to where it goes through: the
        nearest first, of at most so many nodes."""
        todo, seen = collections.deque([start]), {start}
        for _ in range(most):
            if not todo:
                return
            for taker in self.takers(todo.popleft()):
                if taker in seen:
                    continue
                seen.add(taker)
                yield taker
                if goes_through(taker):
                    todo.append(taker)

    def reached_from(self, start: Node) -> set[Node]:
        """All that was computed of what `start` computed, itself included."""
        reached, todo = {start}, [start]
        while todo:
            for taker in self._takers.get(todo.pop(), ()):
                if taker not in reached:
                    reached.add(taker)
                    todo.append(taker)
        return reached


def keeps_none(node: Node, name: str) -> bool:
    """Does it keep no tensor of this name, for certain?"""
    return kept(node, name, unknown=True) is None


def kept(node: Node, name: str, unknown: Any = None) -> Any:
    """What the node keeps; `unknown`: it cannot be read, without running code of the
    user's."""
    if _packed:
        return unknown
    try:
        return getattr(node, f"_saved_{name}", None)
    except RuntimeError:  # written to since, or freed
        return unknown


def saved(node: Node, name: str) -> torch.Tensor | None:
    """A plain tensor in this process's memory that the node keeps; None: it keeps
    none, or it cannot be read without waiting or running code of the user's."""
    value = kept(node, name)
    if type(value) is not torch.Tensor or not value.is_cpu or value.numel() == 0:
        return None
    return value.detach()


def factor(product: Node) -> torch.Tensor | None:
    """What multiplies the one thing that needs a gradient; None: as saved() says, or
    it is not a product with one."""
    if product.name() != "MulBackward0" or len(inputs(product)) != 1:
        return None
    is_first = product.next_functions[0][0] is not None
    return saved(product, "other" if is_first else "self")


def is_of_rows(product: Node) -> bool:
    """Is each matrix of a product of matrices a row times a column: a sum of products?"""
    return (shape(product) or ())[-2:] == (1, 1)


def saved_shape(node: Node, name: str) -> tuple[int, ...] | None:
    """Of a plain tensor that the node keeps, wherever it is; None: as saved() says."""
    value = kept(node, name)
    if type(value) is not torch.Tensor or value.numel() == 0:
        return None
    return tuple(map(int, value.shape))


def saved_dtype(node: Node, name: str) -> torch.dtype | None:
    """As saved_shape."""
    value = kept(node, name)
    return value.dtype if type(value) is torch.Tensor else None


def integer(node: Node, name: str) -> int | None:
    """A number that the node keeps; None: it keeps none of this name."""
    value = getattr(node, f"_saved_{name}", None)
    if type(value) is not int:
        return None
    return value if value < 2**63 else value - 2**64  # given as unsigned


def dimension(node: Node, sizes: tuple[int, ...]) -> int | None:
    """The one that it was computed over, from 0 on; None: not known."""
    over = integer(node, "dim")
    return over if over is None or over >= 0 else over + len(sizes)


def reduced(node: Node) -> set[int]:
    """The dimensions of what it was given that it was computed over, from 0 on; empty:
    not known."""
    over, sizes = kept(node, "dim"), kept(node, "self_sym_sizes")
    if not isinstance(over, (tuple, list)) or not isinstance(sizes, (tuple, list)):
        return set()
    # Those below 0 are given as unsigned numbers.
    count = len(sizes)
    return {int(one) if one < count else int(one) - 2**64 + count for one in over}


def shape(node: Node) -> tuple[int, ...] | None:
    """Of what it computed; None: not known, or of several results."""
    metadata: Any = getattr(node, "_input_metadata", ())
    return _sizes(metadata[0]) if len(metadata) == 1 else None


def first_shape(node: Node) -> tuple[int, ...] | None:
    """Of the first of what it computed; None: not known."""
    metadata: Any = getattr(node, "_input_metadata", ())
    return _sizes(metadata[0]) if metadata else None


def given_shape(node: Node) -> tuple[int, ...] | None:
    """Of the first that it was given with a gradient, one of several results, too;
    None: not known."""
    for giver, place in node.next_functions:
        if giver is not None:
            metadata: Any = getattr(giver, "_input_metadata", ())
            return _sizes(metadata[place]) if place < len(metadata) else None
    return None


def _sizes(metadata: Any) -> tuple[int, ...] | None:
    try:
        return tuple(int(size) for size in metadata.shape)
    except (RuntimeError, TypeError):  # nested tensors have no sizes
        return None
