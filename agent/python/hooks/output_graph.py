"""What a loss's graph says of what a model ends in: the last operations before the loss.

They limit what the model can say. A sigmoid never gives a target of -1, a ReLU no score
below 0, and a softmax over one class nothing but 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.graph_nodes import (
    ERRORS,
    LAYER_PRODUCTS,
    NLL,
    VIEWS,
    dimension,
    factor,
    inputs,
    integer,
    saved,
    shape,
)
from _traincheck.value_graph import SAME_VALUES, givers_of, origins_of, values_of

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

    from _traincheck.findings import Findings

# Names of the scalars.
OUT_OF_REACH = "loss.targets_out_of_reach"
RECTIFIED = "loss.scores_rectified"
DROPPED = "loss.scores_dropped"
ONE_CLASS = "loss.one_class"
TRAINS_CRITIC = "loss.advantage_has_gradient"

_DIFFERENCES = frozenset(("AbsBackward0", "PowBackward0"))
_SOFTMAX = "SoftmaxBackward0"
_LOG_SOFTMAX = "LogSoftmaxBackward0"
_RECTIFIERS = frozenset(("ReluBackward0", "ThresholdBackward0"))
# Between what values an activation's results lie.
_RANGES = {
    "ReluBackward0": (0.0, math.inf),
    "SigmoidBackward0": (0.0, 1.0),
    "SoftmaxBackward0": (0.0, 1.0),
    "SoftplusBackward0": (0.0, math.inf),
    "TanhBackward0": (-1.0, 1.0),
}
# What hands on values in their order, in another shape.
_RESIZES = VIEWS | {
    f"{name}Backward{number}"
    for name, numbers in (("Squeeze", "012"), ("Unsqueeze", "0"))
    for number in numbers
}
_MOST_VIEWS = 4  # of one another
_SELECTION = "SelectBackward0"
_READ = 1 << 16  # elements
_LEAST = 16  # targets
_SHARE = 1 / 8  # of them, out of reach
# Noise around values in reach is outside at most so often, if it has no bias.
_MOST_NOISE = 1 / 2
_AVERAGED = 16  # positions of a picture, at least, whose noise a mean takes away
_NO_REDUCTION = 0  # as torch numbers reductions
_TOTALS = frozenset(
    f"{name}Backward{number}" for name in ("Mean", "Sum") for number in "01"
)
# Between the errors and their mean. A selection may leave out the missing elements.
_SELECTED = frozenset(("IndexBackward0", "MaskedSelectBackward0"))
_ADDED = (
    (SAME_VALUES - _SELECTED)
    | _TOTALS
    | {"AddBackward0", "NegBackward0", "SqrtBackward0"}
)
_SCALED = frozenset(("DivBackward0", "MulBackward0"))
_MOST_ADDED = 32
_MARGIN = 0.1  # of their deviation: noise reaches a little further

# Between a log-probability and what it is multiplied by: a choice of one action, a sum
# over the actions of a step.
_CHOICES = frozenset(("GatherBackward0", "IndexBackward0", "SelectBackward0"))
_PASSED_ON = SAME_VALUES | _CHOICES | {"NegBackward0", "SumBackward1"}
_LOGARITHMS = frozenset(("LogBackward0", _LOG_SOFTMAX))
_GAUSSIAN = ("DivBackward0", "NegBackward0", "PowBackward0")  # -(x - mean)^2 / 2 var
# Between a critic's values and an advantage.
_ARITHMETIC = (
    SAME_VALUES
    | _CHOICES
    | {
        "AddBackward0",
        "DivBackward0",
        "MeanBackward0",
        "MulBackward0",
        "NegBackward0",
        "RsubBackward1",
        "StdBackward0",
        "SubBackward0",
        "SumBackward1",
    }
)
_MOST_BETWEEN = 256


def look(node: Node, found: Findings) -> None:
    name = node.name()
    if name in ERRORS:
        if integer(node, "reduction") != _NO_REDUCTION:
            found.add(OUT_OF_REACH, _error_is_out_of_reach(node))
        _add_if_all(found, _is_of_one_class(node, _SOFTMAX))
        found.add(DROPPED, _are_dropped(node))
    elif name in _TOTALS and math.prod(shape(node) or ()) == 1:
        for error in _errors_of(node):
            of_own = error.name() in _DIFFERENCES
            look_at = _difference_is_out_of_reach if of_own else _error_is_out_of_reach
            found.add(OUT_OF_REACH, look_at(error))
    elif name == "BinaryCrossEntropyBackward0":
        _add_if_all(found, _is_of_one_class(node, _SOFTMAX))
    elif name in NLL:
        _add_if_all(found, _is_of_one_class(node, _LOG_SOFTMAX))
        for giver in givers_of(node):
            if giver.name() == _LOG_SOFTMAX:
                look_at_scores(giver, found)
    elif name == "MulBackward0":
        found.add(TRAINS_CRITIC, _trains_critic(node))


def _add_if_all(found: Findings, is_of_one: bool | None) -> None:
    """Of several heads, one may have a single class in this data."""
    if is_of_one is not None:
        found[ONE_CLASS] = min(found.get(ONE_CLASS, 1.0), float(is_of_one))
        found.causes[ONE_CLASS] = found.at


def _errors_of(total: Node) -> list[Node]:
    """Errors of single elements all of which it adds up, or averages. A mask of zeros
    leaves out elements that have no target."""
    found = []
    todo = inputs(total)[:1]
    for _ in range(_MOST_ADDED):
        if not todo:
            break
        node = todo.pop()
        name = node.name()
        if name in _DIFFERENCES:
            found.append(node)
        elif name in ERRORS and integer(node, "reduction") == _NO_REDUCTION:
            found.append(node)
        elif name in _ADDED or (name in _SCALED and _keeps_all(node)):
            todo += inputs(node)
    return found


def _keeps_all(scaled: Node) -> bool:
    """Is it known that nothing is multiplied by 0?"""
    if scaled.name() == "DivBackward0":
        return True
    weights = factor(scaled)
    if weights is None or weights.numel() > _READ:
        return False
    return bool((weights != 0).all())


def look_at_scores(node: Node, found: Findings) -> None:
    """node: a cross entropy of logits, or the log_softmax of one."""
    origins = origins_of(node)
    if origins:
        found.add(RECTIFIED, origins <= _RECTIFIERS)
        found.add(DROPPED, _are_dropped(node))


def _error_is_out_of_reach(error: Node) -> bool | None:
    """Are many targets values that the last activation never gives? None: there is no
    such activation, or the targets cannot be read."""
    following = error.next_functions
    predicted = [place for place, (node, _) in enumerate(following) if node is not None]
    if len(predicted) != 1:
        return None
    reach = _reach({one.name() for giver in givers_of(error) for one in _wholes(giver)})
    if reach is None:
        return None
    targets = saved(error, "target" if predicted[0] == 0 else "self")
    return _are_outside(targets, *reach)


def _difference_is_out_of_reach(node: Node) -> bool | None:
    """The same of |prediction - target| or its square, where the target is not kept:
    the activation keeps its results."""
    difference = saved(node, "self")
    subtractions = [one for one in inputs(node) if one.name() == "SubBackward0"]
    if difference is None or len(subtractions) != 1:
        return None
    following = subtractions[0].next_functions
    if len(following) != 2 or (following[0][0] is None) == (following[1][0] is None):
        return None
    is_first = following[0][0] is not None
    (giver,) = inputs(subtractions[0])
    activation = _before_views(giver)
    reach = _reach({activation.name()})
    results = saved(activation, "result")
    if reach is None or results is None or results.numel() != difference.numel():
        return None
    if results.shape != difference.shape:
        if activation is giver or not results.is_contiguous():
            return None
        results = results.view(difference.shape)
    results, difference = _first(results), _first(difference)
    targets = results - difference if is_first else results + difference
    return _are_outside(targets, *reach)


def _before_views(node: Node) -> Node:
    """What gave it values, through what changes sizes and no order: squeeze, view, [:, 0]
    of a single column."""
    for _ in range(_MOST_VIEWS):
        givers = inputs(node)
        if len(givers) != 1:
            break
        if node.name() not in _RESIZES and not _selects_all(node, givers[0]):
            break
        node = givers[0]
    return node


def _wholes(giver: Node) -> list[Node]:
    """What gave it values, if it is one row or column of these."""
    givers = [giver]
    for _ in range(_MOST_VIEWS):
        if [one.name() for one in givers] != [_SELECTION]:
            break
        givers = values_of(inputs(givers[0]))
    return givers


def _selects_all(node: Node, giver: Node) -> bool:
    before, after = shape(giver), shape(node)
    if node.name() != _SELECTION or before is None or after is None:
        return False
    return math.prod(before) == math.prod(after)


def _reach(origins: set[str]) -> tuple[float, float] | None:
    return _RANGES.get(next(iter(origins))) if len(origins) == 1 else None


def _first(values: torch.Tensor) -> torch.Tensor:
    """Its first samples, or the first one."""
    if values.dim() == 0:
        return values
    return values[: max(1, _READ * len(values) // values.numel())]


def _are_outside(targets: torch.Tensor | None, low: float, high: float) -> bool | None:
    if targets is None or targets.numel() < _LEAST or targets.is_complex():
        return None
    values = targets.flatten()[:_READ].float()
    margin = float(_MARGIN * values.std())

    def share(numbers: torch.Tensor) -> float:
        outside = (numbers < low - margin) | (numbers > high + margin)
        return float(outside.float().mean())

    if share(values) > _MOST_NOISE or targets.dim() < 4:
        return share(values) > _SHARE
    # Pictures with noise have means in reach.
    means = _means(targets)
    if share(values) <= _SHARE or means is None:
        return share(values) > _SHARE
    return True if share(means) > _SHARE else None


def _means(pictures: torch.Tensor) -> torch.Tensor | None:
    """Of each channel of [samples, channels, ...]; None: they are very small."""
    table = _first(pictures).flatten(2)
    if table.shape[2] < _AVERAGED:
        return None
    step = max(1, table.numel() // _READ)
    return table[..., ::step].float().mean(2)


def _is_of_one_class(loss: Node, softmax: str) -> bool | None:
    """Is there but one class, so that its probability is always 1?"""
    for giver in givers_of(loss):
        sizes = shape(giver) if giver.name() == softmax else None
        over = None if sizes is None else dimension(giver, sizes)
        if sizes is not None and over is not None and sizes:
            return sizes[over] == 1
    return None


def _are_dropped(node: Node) -> bool | None:
    """Is dropout the last that happens to the scores? None: not known."""
    is_second = node.name() in ERRORS and node.next_functions[0][0] is None
    targets = saved(node, "self" if is_second else "target")
    dropped = [giver for giver in givers_of(node) if _is_dropout(giver)]
    if dropped and targets is None and node.name() in ERRORS:
        return None
    return any(not _hides_both(giver, targets) for giver in dropped)


def _hides_both(product: Node, targets: torch.Tensor | None) -> bool:
    """Are the targets 0 wherever the factor is, as behind a mask of both?"""
    hidden = factor(product)
    if hidden is None or targets is None or targets.numel() != hidden.numel():
        return False
    return not bool(targets.reshape(-1)[hidden.reshape(-1) == 0].any())


def _is_dropout(node: Node) -> bool:
    """A factor has zeros, and one value above 1 otherwise: 1 / (1 - p)."""
    if node.name() == "NativeDropoutBackward0":
        return True
    if node.name() != "MulBackward0" or len(inputs(node)) != 1:
        return False
    noise = saved(node, "other")
    if noise is None or noise.numel() > _READ or noise.is_complex():
        return False
    if tuple(noise.shape) != shape(node):
        return False
    scale = noise.max()
    if not bool(scale > 1) or bool((noise != 0).all()):
        return False
    return bool(((noise == 0) | (noise == scale)).all())


def _trains_critic(product: Node) -> bool | None:
    """Is a log-probability multiplied by an advantage through whose estimated value
    gradients flow? None: it is no product with the log-probability of a choice."""
    following = product.next_functions
    if len(following) != 2:
        return None
    (first, _), (second, _) = following
    for one, other in ((first, second), (second, first)):
        if one is not None and _is_log_probability(one):
            return other is not None and _is_advantage(other)
    return None


def _is_log_probability(node: Node) -> bool:
    chosen = False
    names = []
    for _ in range(_MOST_BETWEEN):
        name = node.name()
        names.append(name)
        if tuple(names[-3:]) == _GAUSSIAN:
            return True
        if name in _LOGARITHMS or _is_normalised(node):
            return chosen
        if name not in _PASSED_ON | {"SubBackward0", "DivBackward0"}:
            return False
        chosen = chosen or name in _CHOICES
        givers = inputs(node)
        if not givers:
            return False
        node = givers[0]
    return False


def _is_normalised(node: Node) -> bool:
    """Are the scores less the logarithm of the sum of their exponentials?"""
    names = [giver.name() for giver in values_of(inputs(node))]
    return node.name() == "SubBackward0" and "LogsumexpBackward0" in names


def _is_advantage(node: Node) -> bool:
    """Is it computed of single values that layers have given, by arithmetic alone?"""
    seen = {node}
    todo = [node]
    estimates = subtracted = False
    while todo and len(seen) < _MOST_BETWEEN:
        one = todo.pop()
        name = one.name()
        if name in LAYER_PRODUCTS:
            sizes = shape(one)
            if not sizes or sizes[-1] != 1:
                return False
            estimates = True
            continue
        if name not in _ARITHMETIC:
            return False
        subtracted = subtracted or name in ("RsubBackward1", "SubBackward0")
        for giver in inputs(one):
            if giver not in seen:
                seen.add(giver)
                todo.append(giver)
    return estimates and subtracted
