"""Losses of each step of a recurrence that runs forward alone, read from their graph.

What is predicted at a step then has seen the steps up to this one and nothing else. All
that lies between the tokens and the loss is known to work on each step by itself, or to
be such a recurrence that begins with a state of zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.graph_nodes import LAYER_PRODUCTS, NLL, inputs, kept, shape

if TYPE_CHECKING:
    from torch.autograd.graph import Node

_MAX_NODES = 4096
_PARAMETER = "torch::autograd::AccumulateGrad"
_BY_STEP = NLL | {
    "AddBackward0",
    "CloneBackward0",
    "GeluBackward0",
    "LogSoftmaxBackward0",
    "MulBackward0",
    "NativeDropoutBackward0",
    "NativeLayerNormBackward0",
    "PermuteBackward0",
    "ReluBackward0",
    "SiluBackward0",
    "TBackward0",
    "TanhBackward0",
    "TransposeBackward0",
    "TransposeBackward1",
    "UnsafeViewBackward0",
    "ViewBackward0",
}
# One node for all steps: on the CPU, on a device.
_LAYERS = {"MkldnnRnnLayerBackward0": "reverse", "CudnnRnnBackward0": "bidirectional"}
_STACK, _STEPS = "StackBackward0", "UnbindBackward0"
_CELL = frozenset(
    (
        "AddBackward0",
        "AddmmBackward0",
        "MulBackward0",
        "ReluBackward0",
        "SigmoidBackward0",
        "SubBackward0",
        "TBackward0",
        "TanhBackward0",
        "UnsafeSplitBackward0",
    )
)


def reads_each_step(loss: Node, embedding: Node, tokens: int) -> bool:
    """Is the loss about each of so many tokens, which a recurrence reads forward?"""
    seen: set[tuple[Node, int]] = set()
    todo = [(loss, 0)]
    has_recurrence = reaches = False
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        node, result = at
        name = node.name()
        if node is embedding:
            reaches = True
        elif name in _LAYERS or name == _STACK:
            given = _given_to(node) if result == 0 else None
            if given is None:
                return False
            has_recurrence = True
            todo.extend((one, 0) for one in given)
        elif name in _BY_STEP or (name in LAYER_PRODUCTS and _rows(node) == tokens):
            todo.extend(_computed(node))
        elif name != _PARAMETER:
            return False
    return has_recurrence and reaches


def _given_to(recurrence: Node) -> list[Node] | None:
    """What it reads, step by step; None: that is not known, or something else, too."""
    name = recurrence.name()
    if name == _STACK:
        return _given_to_cells(recurrence)
    others = [one for one, _ in recurrence.next_functions[1:] if one is not None]
    is_forward = getattr(recurrence, f"_saved_{_LAYERS[name]}", None) is False
    if not is_forward or any(one.name() != _PARAMETER for one in others):
        return None
    first = recurrence.next_functions[0][0]
    return None if first is None else [first]


def _given_to_cells(stack: Node) -> list[Node] | None:
    """Of a recurrence that is computed cell by cell."""
    states = inputs(stack)
    first = _steps_read(states[:1])
    steps = _steps_read(states)
    if first is None or steps is None or len({node for node, _ in steps}) != 1:
        return None
    if {place for _, place in first} != {0} or len(steps) != len(states):
        return None
    return inputs(next(iter(steps))[0])


def _steps_read(states: list[Node]) -> set[tuple[Node, int]] | None:
    """(unbound, place) of all that the states are computed of; None: of others, too."""
    found: set[tuple[Node, int]] = set()
    seen, todo = set(states), list(states)
    while todo:
        node = todo.pop()
        if node.name() not in _CELL or len(seen) > _MAX_NODES:
            return None
        for giver, place in _computed(node):
            if giver.name() == _STEPS:
                found.add((giver, place))
            elif giver not in seen and giver.name() != _PARAMETER:
                seen.add(giver)
                todo.append(giver)
    return found


def _computed(node: Node) -> list[tuple[Node, int]]:
    return [(giver, place) for giver, place in node.next_functions if giver is not None]


def _rows(product: Node) -> int | None:
    sizes = shape(product)
    if sizes:
        return sizes[0]
    # Before torch 2.5: those of what it multiplies.
    given = kept(product, "mat1_sym_sizes") or kept(product, "self_sym_sizes")
    return int(given[0]) if isinstance(given, (tuple, list)) and given else None
