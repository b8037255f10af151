"""What a loss's graph says of labels, and of targets that the network makes itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import (
    ERRORS,
    LAYER_PRODUCTS,
    PERMUTATIONS,
    VIEWS,
    dimension,
    first_shape,
    inputs,
    integer,
    kept,
    saved,
    saved_shape,
    shape,
    walk,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from _traincheck.findings import Findings

NO_SIGNS = "loss.labels_no_signs"
CTC_BLANK = "loss.ctc_blank"
CTC_OF_SCORES = "loss.ctc_of_scores"
BOOTSTRAPS = "loss.bootstraps_with_gradient"
PENALTY_OF_PARTS = "loss.penalty_of_parts"
WITH_ITSELF = "loss.contrasts_with_itself"
SEVERAL_LABELS = "loss.several_labels"

_ADDITIONS = frozenset(("AddBackward0", "AddBackward1"))
_BEST = frozenset(("AmaxBackward0", "MaxBackward0", "MaxBackward1"))
# Between the best value and the target: reward, discount, ends of episodes.
_DISCOUNTS = (
    _ADDITIONS
    | VIEWS
    | {
        "MulBackward0",
        "SqueezeBackward0",
        "SqueezeBackward1",
        "ToCopyBackward0",
        "UnsqueezeBackward0",
    }
)
_MAX_BETWEEN = 16
_WEIGHT = "torch::autograd::AccumulateGrad"
_MAX_RESHAPED = 4
_MAX_WEIGHTS = 256  # nodes among which weights are looked for
_FEWEST_SAMPLES = 4  # that are told apart
_MOST = 1 << 20  # elements of one tensor that are looked at
_NO_REDUCTION = 0
# The places of the weight among what a convolution, and its backward, is given.
_CONVOLUTIONS = {"ConvolutionBackward0": 1, "ConvolutionBackwardBackward0": 2}
_MAX_CONVOLUTIONS = 256  # nodes among which they are looked for


def look(node: Node, found: Findings) -> None:
    name = node.name()
    if name == "CtcLossBackward0":
        found.add(CTC_BLANK, _contains_blank(node))
        found.add(CTC_OF_SCORES, _are_no_logarithms(node))
    elif name in ERRORS:
        found.add(BOOTSTRAPS, _bootstraps(node))
    elif name == "PowBackward0":
        for difference in inputs(node):
            if difference.name() == "SubBackward0":
                found.add(BOOTSTRAPS, _bootstraps(difference))
        if kept(node, "exponent") == 0.5:
            found.add(PENALTY_OF_PARTS, _is_root_of_parts(node))
    elif name == "SoftMarginLossBackward0":
        if integer(node, "reduction") != _NO_REDUCTION:  # the script may mask it
            found.add(NO_SIGNS, _are_no_signs(_read(node, "target")))
    elif name == "ClampMinBackward0":
        found.add(NO_SIGNS, _ranks_by_no_signs(node))
    elif name == "NllLossBackward0":
        found.add(WITH_ITSELF, _contrasts_with_itself(node))
    elif name == "DivBackward1":
        found.add(SEVERAL_LABELS, _has_several_labels(node))
    elif name == "LinalgVectorNormBackward0":
        sizes = saved_shape(node, "self")
        found.add(PENALTY_OF_PARTS, _is_of_parts(node, sizes, shape(node)))
    elif name == "SqrtBackward0":
        found.add(PENALTY_OF_PARTS, _is_root_of_parts(node))
    elif name in _ADDITIONS:
        found.add(NO_SIGNS, _are_no_sides(node))


def _read(node: Node, name: str) -> torch.Tensor | None:
    """As saved(), of a tensor that is small enough to be looked through."""
    value = saved(node, name)
    return None if value is None or value.numel() > _MOST else value


def _are_no_signs(labels: torch.Tensor | None) -> bool | None:
    """Labels of 0 take what they label out of the loss, as ties and missing labels are;
    among labels that are all of one sign they stand for the other one."""
    if labels is None:
        return None
    values = labels.float()  # of booleans, too
    zero, first, second = values == 0, values == 1, values == -1
    if not bool((zero | first | second).all()):
        return True
    return bool(zero.any()) and not (bool(first.any()) and bool(second.any()))


def _ranks_by_no_signs(clamp: Node) -> bool | None:
    """Of margin_ranking_loss: max(0, -label (first - second) + margin)."""
    for addition in inputs(clamp):
        for product in inputs(addition):
            if addition.name() not in _ADDITIONS or product.name() != "MulBackward0":
                continue
            following = product.next_functions
            if len(following) != 2 or following[0][0] is not None:
                continue
            if [node.name() for node in inputs(product)] != ["SubBackward0"]:
                continue
            return _are_no_opposite_signs(_read(product, "self"))
    return None


def _are_no_opposite_signs(opposites: torch.Tensor | None) -> bool | None:
    """opposites: labels, each times -1. None: they weigh another loss."""
    if opposites is None:
        return None
    values = opposites.float()
    # Weights have other values than 0 and -1; a mask has zeros and ones.
    if not bool(((values == 0) | (values.abs() == 1)).all()):
        return None
    if bool((values == 0).any()) and not bool((values < 0).any()):
        return None
    return _are_no_signs(values)


def _are_no_sides(addition: Node) -> bool | None:
    """Of cosine_embedding_loss and hinge_embedding_loss: one term is for labels of 1,
    the other one for -1, and one of them ends at a margin. A label of 0 gets none of
    them, or both."""
    terms = inputs(addition)
    if len(terms) != 2 or any(term.name() != "WhereBackward0" for term in terms):
        return None
    arms = [arm.name() for term in terms for arm in inputs(term)]
    if "ClampMinBackward0" not in arms:
        return None
    first, second = (_read(term, "condition") for term in terms)
    if first is None or second is None or first.shape != second.shape:
        return None
    if bool((first ^ second).all()):
        return False
    # Labels of 0 and 1 lack one side; other sums of two parts have both.
    return True if _is_constant(first) or _is_constant(second) else None


def _is_constant(condition: torch.Tensor) -> bool:
    return bool(condition.all()) or not bool(condition.any())


def _contains_blank(ctc: Node) -> bool | None:
    targets, blank = saved(ctc, "targets"), integer(ctc, "blank")
    lengths = _lengths(ctc, "target_lengths")
    if targets is None or blank is None or lengths is None:
        return None
    if targets.dim() == 1:
        rows = [targets[: sum(lengths)]]
    else:
        rows = [row[:length] for row, length in zip(targets, lengths)]
    return any(bool((row == blank).any()) for row in rows)


def _are_no_logarithms(ctc: Node) -> bool | None:
    """Do the probabilities of the classes not add up to 1? The frames behind the end of
    a sequence are not read, and may hold anything."""
    values = saved(ctc, "log_probs")
    if values is None or values.dim() not in (2, 3) or values[0].numel() > _MOST:
        return None
    frames = values if values.dim() == 3 else values[:, None]
    few = frames[: max(1, _MOST // frames[0].numel())]
    wrong = few.float().logsumexp(-1).abs() > 1e-2
    # Each sequence has a first frame.
    lengths = _lengths(ctc, "input_lengths") or [1] * few.shape[1]
    if len(lengths) != few.shape[1]:
        return None
    return any(bool(row[:end].any()) for row, end in zip(wrong.t(), lengths))


def _lengths(ctc: Node, name: str) -> list[int] | None:
    """Of the sequences; None: not known."""
    given = kept(ctc, name)
    if isinstance(given, torch.Tensor):
        known = _read(ctc, name)
        given = None if known is None else known.flatten().tolist()
    return list(map(int, given)) if isinstance(given, (tuple, list)) else None


def _bootstraps(error: Node) -> bool | None:
    """Is the target the best value of a state, or the value that the same layer gives
    another state, and trained, too? None: there is no such target."""
    following = error.next_functions
    if len(following) != 2:
        return None
    (first, _), (second, _) = following
    if first is None or second is None:
        return None
    return _is_estimated(second, first) or _is_estimated(first, second, best=False)


def _is_estimated(target: Node, value: Node, best: bool = True) -> bool | None:
    """best: does the best of several values count, whatever gave it?"""
    added = discounted = ends = False
    for _ in range(_MAX_BETWEEN):
        name = target.name()
        if name in _BEST:
            return (best and added and not _are_apart(target, value)) or None
        if name in LAYER_PRODUCTS:
            # Equations of values, solved by their residuals, go on for ever.
            estimated = added and discounted and ends
            return (estimated and _are_of_one_layer(target, value)) or None
        givers = inputs(target)
        if name not in _DISCOUNTS or not givers:
            return None
        added = added or name in _ADDITIONS
        discounted = discounted or name == "MulBackward0"
        ends = ends or (name == "MulBackward0" and _is_by_several(target))
        target = givers[0]
    return None


def _are_apart(one: Node, other: Node) -> bool:
    """Do they come from different networks, each with weights of its own? A target
    network that no optimizer holds gets gradients in vain."""
    weights, others = (
        {node for node in walk([root], _MAX_WEIGHTS) if node.name() == _WEIGHT}
        for root in (one, other)
    )
    return bool(weights) and bool(others) and weights.isdisjoint(others)


def _is_by_several(product: Node) -> bool:
    """Does it multiply by a number for each sample, as the ends of episodes are?"""
    sizes = (saved_shape(product, name) for name in ("self", "other"))
    return any(size is not None and math.prod(size) > 1 for size in sizes)


def _are_of_one_layer(layer: Node, value: Node) -> bool:
    """Does the value come from the layer's weights, by shapes and sums alone?"""
    node = value
    for _ in range(_MAX_BETWEEN):
        if node.name() in LAYER_PRODUCTS:
            return bool(_weights(node) & _weights(layer))
        givers = inputs(node)
        if node.name() not in _DISCOUNTS or len(givers) != 1:
            return False
        node = givers[0]
    return False


def _weights(layer: Node) -> set[Node]:
    """The nodes that collect their gradients."""
    givers = inputs(layer)
    givers += [
        one for node in givers if node.name() == "TBackward0" for one in inputs(node)
    ]
    return {node for node in givers if node.name() == _WEIGHT}


def _contrasts_with_itself(nll: Node) -> bool | None:
    """Is each sample's likeness to itself, which is the greatest, one of the wrong
    answers? None: it is no choice among the samples themselves."""
    scores, targets = saved(nll, "self"), saved(nll, "target")
    if scores is None or targets is None or scores.dim() != 2:
        return None
    count = len(scores)
    if count < _FEWEST_SAMPLES or scores.shape[1] != count or len(targets) != count:
        return None
    own = torch.arange(count, device=scores.device)
    if bool((targets == own).any()):
        return False
    own = own[: max(1, _MOST // count)]  # samples that are looked at
    others = scores[: len(own)].clone()
    others[own, own] = float("-inf")
    return bool((scores[own, own] > others.amax(1)).all())


def _has_several_labels(mean: Node) -> bool | None:
    """Of cross_entropy with targets that are probabilities: are there rows of several
    ones? None: it is not torch's own mean, or the targets are not all 0 or 1.

    mean: torch divides by a number that is not a tensor, a script by one that is. What
    a script adds up itself may be the likelihood of all that somebody chose."""
    whole = [one for negative in inputs(mean) for one in inputs(negative)]
    products = [one for total in whole[:1] for one in inputs(total)]
    if [one.name() for one in inputs(mean) + whole] != ["NegBackward0", "SumBackward0"]:
        return None
    if len(products) != 1 or products[0].name() != "MulBackward0":
        return None
    following = products[0].next_functions
    if len(following) != 2 or following[0][0] is None or following[1][0] is not None:
        return None
    if following[0][0].name() != "LogSoftmaxBackward0":
        return None
    targets = _read(products[0], "other")
    if targets is None or not bool(((targets == 0) | (targets == 1)).all()):
        return None
    sizes = tuple(targets.shape)
    if sizes != shape(following[0][0]):  # a mask of the classes
        return None
    over = dimension(following[0][0], sizes)
    return None if over is None else bool((targets.sum(over) > 1).any())


def _is_of_parts(
    norm: Node, gradients: tuple[int, ...] | None, norms: tuple[int, ...] | None
) -> bool | None:
    """Is the norm of a sample's gradient taken of its pixels or rows, not of all of
    it? None: it is no norm of what a backward through a convolution computed."""
    if not gradients or norms is None:
        return None
    samples = _samples_of_convolution(norm)
    if samples is None or _leaves_points_apart(norm):
        return None
    count = math.prod(norms)
    # The convolution may have been given the frames of a sample one by one, or a
    # sequence whose steps come first.
    return None if count == 1 else count not in (gradients[0], samples)


def _is_root_of_parts(root: Node) -> bool | None:
    """The same of a norm that is written out, as the root of a sum of squares and
    perhaps a small number."""
    (node, *more) = inputs(root) or [root]
    if not more and node.name() == "AddBackward0" and len(inputs(node)) == 1:
        node = inputs(node)[0]
    if node.name() != "SumBackward1":
        return None
    square = inputs(node)[0]
    if square.name() == "PowBackward0":
        is_square = kept(square, "exponent") == 2
    else:
        givers = inputs(square)
        is_square = square.name() == "MulBackward0" and len(givers) == 2
        is_square = is_square and givers[0] is givers[1]
    return _is_of_parts(square, shape(square), shape(node)) if is_square else None


def _samples_of_convolution(norm: Node) -> int | None:
    """How many it was given, if the norm is of what a backward through it computed."""
    givers = inputs(norm)
    for _ in range(_MAX_RESHAPED):
        # A square may be a product with itself.
        if not givers or any(giver is not givers[0] for giver in givers):
            return None
        if givers[0].name() not in VIEWS | PERMUTATIONS:
            break
        givers = inputs(givers[0])
    if not givers or givers[0].name() != "ConvolutionBackwardBackward0":
        return None
    sizes = first_shape(givers[0])
    return sizes[0] if sizes else None


def _leaves_points_apart(norm: Node) -> bool:
    """Have all convolutions a kernel of one point, so that each point is a sample?"""
    kernels = []
    for node in walk([norm], _MAX_CONVOLUTIONS):
        place = _CONVOLUTIONS.get(node.name())
        if place is None or len(node.next_functions) <= place:
            continue
        weight = node.next_functions[place][0]
        sizes = saved_shape(node, "weight")
        if sizes is None and weight is not None:
            sizes = shape(weight)
        if sizes is None:
            return False
        kernels.append(sizes[2:])
    return bool(kernels) and all(math.prod(kernel) == 1 for kernel in kernels)
