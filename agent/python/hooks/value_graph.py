"""Where the values come from that a node of autograd's graph is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import inputs

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_MOST = 256  # nodes on the way

# Nodes that hand on the values of their inputs, in another place, shape or type.
SAME_VALUES = frozenset(
    f"{name}Backward{number}"
    for name, numbers in {
        "Alias": "0",
        "Cat": "0",
        "Clone": "0",
        "Expand": "0",
        "Flatten": "0",
        "Index": "0",
        "MaskedSelect": "0",
        "Permute": "0",
        "ReshapeAlias": "0",
        "Slice": "0",
        "Squeeze": "012",
        "Stack": "0",
        "SwapDims": "0",
        "T": "0",
        "ToCopy": "0",
        "Transpose": "01",
        "Unsqueeze": "0",
        "UnsafeView": "0",
        "View": "0",
    }.items()
    for number in numbers
)


def origins_of(node: Node) -> set[str]:
    """Names of the nodes whose values the node is given."""
    return {giver.name() for giver in givers_of(node)}


def givers_of(node: Node) -> list[Node]:
    """The first input alone: others are targets or weights."""
    return values_of(inputs(node)[:1])


def values_of(nodes: list[Node]) -> list[Node]:
    """What computed the values that these hand on; a node that computes is its own."""
    found = []
    todo = list(nodes)
    for _ in range(_MOST):
        if not todo:
            break
        node = todo.pop()
        if node.name() in SAME_VALUES:
            todo.extend(inputs(node))
        else:
            found.append(node)
    return found
