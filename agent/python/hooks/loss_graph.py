"""What the graph of a loss says of how it was computed, read before its backward.

Each operation of the forward has left a node in the graph, so that neither
values nor calls need to be recorded: this costs nothing on a device and sees
what torch's functions do inside. Only the nodes next to the loss are looked at,
at the first backwards and now and then later.
"""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Args, Core, Kwargs

_MAX_NODES = 256
_FIRST = 8  # backwards that are looked at
_EVERY = 64  # afterwards one of so many

# Nodes that hand on the values of their inputs, in another place, shape or type.
_SAME_VALUES = frozenset(
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
_SOFTMAX = "SoftmaxBackward0"
_SIGMOID = "SigmoidBackward0"
_LOG_SOFTMAX = "LogSoftmaxBackward0"
_NLL = frozenset(("NllLossBackward0", "NllLoss2DBackward0"))
_OF_LOGITS = "BinaryCrossEntropyWithLogitsBackward0"
_LAYERS = frozenset(("AddmmBackward0", "ConvolutionBackward0"))
# What gives scores or probabilities, and never their logarithms.
_NO_LOGARITHMS = _LAYERS | {_SOFTMAX, _SIGMOID, "ReluBackward0", "TanhBackward0"}

_DIFFERENCE = frozenset(("SubBackward0", "RsubBackward0"))
_MEAN = 1  # as torch numbers reductions

# Names of the scalars: mistakes, 1 where one is made and 0 where one could be.
TWICE = "loss.normalised_twice"
NO_LOGARITHMS = "loss.no_logarithms"
BROADCAST = "loss.broadcast"
# Over how many targets the loss is a mean.
TARGETS = "loss.targets"


class LossGraphs:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._backwards = 0

    def backward_begins(self, args: Args, kwargs: Kwargs) -> None:
        """Called at every outermost one, with its arguments."""
        number = self._backwards
        self._backwards += 1
        if number >= _FIRST and number % _EVERY != 0:
            return
        core = self._core
        for name, value in findings(_roots(args, kwargs)).items():
            core.record_scalar(0, core.POINT_BACKWARD_END, 0, name, value)


def findings(roots: list[Node]) -> dict[str, float]:
    """Name of a scalar -> value. Mistakes with no occasion are left out."""
    found: dict[str, float] = {}
    means: list[float | None] = []

    def add(name: str, wrong: bool) -> None:
        found[name] = max(found.get(name, 0.0), float(wrong))

    for node in _nodes(roots):
        name = node.name()
        if name in (_SOFTMAX, _LOG_SOFTMAX):
            add(TWICE, _origins(node) == {_SOFTMAX})
        elif name == _OF_LOGITS:
            add(TWICE, bool(_origins(node) & {_SIGMOID, _SOFTMAX}))
        elif name in _NLL:
            origins = _origins(node)
            add(NO_LOGARITHMS, bool(origins) and origins <= _NO_LOGARITHMS)
            if origins == {_LOG_SOFTMAX}:
                add(TWICE, _is_of_sigmoids(node))
            means.append(_targets(node))
        elif name in _DIFFERENCE:
            given = _compared(node)
            if given is not None:
                add(BROADCAST, given)
    if len(means) == 1 and means[0] is not None:
        found[TARGETS] = means[0]
    return found


def _targets(nll: Node) -> float | None:
    """Sum of the weights by which it is divided; None: it is no mean, or reading
    it would wait for a device."""
    weight = getattr(nll, "_saved_total_weight", None)
    if getattr(nll, "_saved_reduction", None) != _MEAN:
        return None
    if type(weight) is not torch.Tensor or not weight.is_cpu or weight.numel() != 1:
        return None
    return float(weight.item())


def _compared(difference: Node) -> bool | None:
    """Is one prediction, or each one, compared with all targets?

    Predictions [n, 1] against targets [n] give [n, n], each with each; one
    prediction [1] against [n] stands for all. None: it is no difference between
    what a model computes and what is given.
    """
    inputs = _inputs(difference)
    if len(inputs) != 1 or not inputs[0].next_functions:
        return None
    result, given = _shape(difference), _shape(inputs[0])
    if result is None or given is None or len(result) == 0:
        return None
    square = len(result) == 2 and result[0] == result[1] > 1
    if square and given in ((result[0], 1), (1, result[0]), (result[0],)):
        return True
    if given == result:
        return False
    alone = math.prod(given) == 1 < math.prod(result)
    return True if alone and _origins(difference) <= _LAYERS else None


def _shape(node: Node) -> tuple[int, ...] | None:
    """Of what it computed; None: not known, or of several results."""
    metadata: Any = getattr(node, "_input_metadata", ())
    if len(metadata) != 1:
        return None
    try:
        return tuple(int(size) for size in metadata[0].shape)
    except (RuntimeError, TypeError):  # nested tensors have no sizes
        return None


def _is_of_sigmoids(nll: Node) -> bool:
    """Is a cross entropy given what a sigmoid returned?"""
    return any(
        node.name() == _LOG_SOFTMAX and _origins(node) == {_SIGMOID}
        for node in _givers(nll)
    )


def _nodes(roots: list[Node]) -> Iterator[Node]:
    """The nearest first."""
    seen = set(roots)
    todo = collections.deque(roots)
    while todo:
        node = todo.popleft()
        yield node
        for following in _inputs(node):
            if following not in seen and len(seen) < _MAX_NODES:
                seen.add(following)
                todo.append(following)


def _origins(node: Node) -> set[str]:
    """Names of the nodes whose values the node is given."""
    return {giver.name() for giver in _givers(node)}


def _givers(node: Node) -> list[Node]:
    givers = []
    todo = _inputs(node)[:1]  # the first: others are targets or weights
    for _ in range(_MAX_NODES):
        if not todo:
            break
        giver = todo.pop()
        if giver.name() in _SAME_VALUES:
            todo.extend(_inputs(giver))
        else:
            givers.append(giver)
    return givers


def _inputs(node: Node) -> list[Node]:
    return [following for following, _ in node.next_functions if following is not None]


def _roots(args: Args, kwargs: Kwargs) -> list[Node]:
    given: Any = args[0] if args else kwargs.get("tensors")
    tensors = given if isinstance(given, (list, tuple)) else (given,)
    # Reading an attribute must call no override of the user's.
    with torch._C.DisableTorchFunctionSubclass():
        nodes = [
            tensor.grad_fn for tensor in tensors if isinstance(tensor, torch.Tensor)
        ]
    return [node for node in nodes if node is not None]
