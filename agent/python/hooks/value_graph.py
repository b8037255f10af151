"""Where the values come from that a node of autograd's graph is given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import dimension, inputs, integer, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_MOST = 256  # nodes on the way
_MOST_SLICES = 4  # of one another
_CONCATENATION = "CatBackward0"
_SLICE = "SliceBackward0"

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
        if node.name() == _SLICE:
            todo.extend(_sliced(node))
        elif node.name() in SAME_VALUES:
            todo.extend(inputs(node))
        else:
            found.append(node)
    return found


def _sliced(node: Node) -> list[Node]:
    """What gives a slice its values: of a concatenation the parts that it reaches."""
    ranges: dict[int, tuple[int, int]] = {}
    last = node
    for _ in range(_MOST_SLICES):
        givers = inputs(last)
        sliced = _range(last)
        if len(givers) != 1 or sliced is None or sliced[0] in ranges:
            break
        ranges[sliced[0]] = sliced[1:]
        last = givers[0]
        if last.name() == _CONCATENATION:
            return _parts(last, ranges)
        if last.name() != _SLICE:
            break
    return inputs(node)


def _range(node: Node) -> tuple[int, int, int] | None:
    """Dimension, begin and end of what a slice takes; None: not known."""
    given = inputs(node)[:1]
    sizes = shape(given[0]) if given else None
    over = None if sizes is None else dimension(node, sizes)
    start, end = integer(node, "start"), integer(node, "end")
    if sizes is None or over is None or start is None or end is None:
        return None
    size = sizes[over]
    return over, start + size * (start < 0), min(end + size * (end < 0), size)


def _parts(whole: Node, ranges: dict[int, tuple[int, int]]) -> list[Node]:
    """The parts of a concatenation that such a slice reaches: all, if not known."""
    sizes = shape(whole)
    over = None if sizes is None else dimension(whole, sizes)
    begin, end = ranges.get(-1 if over is None else over, (0, 0))
    if end <= begin:
        return inputs(whole)
    reached, place = [], 0
    for part, _ in whole.next_functions:
        part_sizes = None if part is None else shape(part)
        if part is None or part_sizes is None or over is None:
            return inputs(whole)
        if place < end and place + part_sizes[over] > begin:
            reached.append(part)
        place += part_sizes[over]
    return reached
