"""How the loss of a variational encoder averages its two terms.

The bound adds the errors of all numbers of a sample and the divergences of all latent
ones. Where one of the two is a mean over them and the other a sum, the divergence counts
too much or too little by as many times as there are numbers: everything is noise, or
nothing is. With a weight, whoever has chosen it may have meant that.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple
from typing import TYPE_CHECKING

from _traincheck.findings import Findings
from _traincheck.graph_nodes import (
    ERRORS,
    VIEWS,
    Graph,
    factor,
    given_shape,
    inputs,
    integer,
    kept,
    reduced,
    saved,
    saved_shape,
    shape,
)

if TYPE_CHECKING:
    from torch.autograd.graph import Node

NAME = "loss.divergence_scaled_apart"  # of the scalar

_ENTROPIES = frozenset(
    ("BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0")
)
_ERRORS = ERRORS | _ENTROPIES
_SQUARE = "PowBackward0"
_TERMS = frozenset(("AddBackward0", "RsubBackward1", "SubBackward0"))
_SAME = VIEWS | frozenset(("NegBackward0", "SqueezeBackward0", "SqueezeBackward1"))
_NO_REDUCTION, _MEAN = 0, 1  # as torch numbers reductions
_PATH = 16  # nodes from a number to the loss
_LEAST_NUMBERS = 16  # of a sample
_LEAST_LATENT = 4
_HALF = 0.5  # of the divergence between normal distributions
_NEAR = 0.02


class _Share(NamedTuple):
    weight: float  # by which the loss takes each number
    is_mean: bool  # over those of its sample
    samples: int
    numbers: int  # of a sample


def findings(graph: Graph, variances: list[Node]) -> Findings:
    """variances: that stand by themselves in a divergence."""
    found = Findings()
    variances = variances + list(filter(partial(_adds_squares, graph), graph.nodes))
    latent = [_share_of_divergence(graph, node) for node in variances]
    errors = [node for node in graph.nodes if node.name() in _ERRORS]
    errors = errors or list(filter(_is_own_error, graph.nodes))
    if len(latent) == len(errors) == 1:
        error = _share_of_error(graph, errors[0])
        if latent[0] is not None and error is not None:
            found.add(NAME, _are_apart(latent[0], error))
    return found


def _adds_squares(graph: Graph, node: Node) -> bool:
    """Is it the sum of a mean's square and a deviation's, whose logarithm is taken, too?
    torch.distributions.kl_divergence has no exponential of normal distributions."""
    added = inputs(node)
    if (
        node.name() != "AddBackward0"
        or len(added) != 2
        or not all(map(_squares, added))
    ):
        return False
    logged = ["LogBackward0" in map(_name, graph.takers(one)) for one in added]
    return sum(logged) == 1


def _name(node: Node) -> str:
    return str(node.name())


def _squares(node: Node) -> bool:
    return _name(node) == _SQUARE and bool(kept(node, "exponent") == 2)


def _is_own_error(node: Node) -> bool:
    is_error = node.name() == "AbsBackward0" or _squares(node)
    return is_error and list(map(_name, inputs(node))) == ["SubBackward0"]


def _are_apart(latent: _Share, error: _Share) -> bool | None:
    ratio = latent.weight / _HALF / error.weight
    if not latent.is_mean and not error.is_mean:
        return False if _is_one_or_two(ratio) else None
    if latent.is_mean and error.is_mean:
        return None
    # Who means all numbers of a batch has often the other term's sum over all samples.
    if latent.is_mean:
        enough = latent.numbers >= _LEAST_LATENT
        ratios = (ratio * latent.numbers, ratio * latent.numbers * error.samples)
    else:
        enough = error.numbers >= _LEAST_NUMBERS
        ratios = (ratio / error.numbers, ratio / error.numbers / error.samples)
    return True if enough and any(map(_is_one_or_two, ratios)) else None


def _is_one_or_two(ratio: float) -> bool:
    """Half of a squared error is as common as the whole."""
    return any(abs(ratio / times - 1) < _NEAR for times in (1, 2))


def _share_of_divergence(graph: Graph, variance: Node) -> _Share | None:
    sizes = shape(variance)
    if sizes is None or len(sizes) < 2 or 0 in sizes:
        return None
    share = _Share(1.0, False, sizes[0], math.prod(sizes[1:]))
    return _carried(graph, variance, share)


def _share_of_error(graph: Graph, error: Node) -> _Share | None:
    sizes = shape(error)
    reduction: int | None = _NO_REDUCTION
    if error.name() in _ERRORS:
        sizes = saved_shape(error, "self") or saved_shape(error, "target")
        reduction = integer(error, "reduction")
    if sizes is None or len(sizes) < 2 or 0 in sizes or reduction is None:
        return None
    is_mean = reduction == _MEAN
    weight = 1 / math.prod(sizes) if is_mean else 1.0
    numbers = math.prod(sizes[1:])
    return _carried(graph, error, _Share(weight, is_mean, sizes[0], numbers))


def _carried(graph: Graph, start: Node, share: _Share) -> _Share | None:
    """To the loss; None: something else is done with it on the way."""
    node = start
    for _ in range(_PATH):
        takers = graph.takers(node)
        if len(takers) != 1:
            return None if takers or not share.weight else share
        node = takers[0]
        taken = _taken(node, share)
        if taken is None:
            return None
        share = taken
    return None


def _taken(taker: Node, share: _Share) -> _Share | None:
    name = taker.name()
    if name in _SAME or name in ("SumBackward0", "SumBackward1"):
        return share
    if name in _TERMS:
        return share if kept(taker, "alpha", unknown=1) in (None, 1) else None
    if name == "MeanBackward0":
        sizes = given_shape(taker)
        return (
            None if sizes is None else _averaged(share, sizes, set(range(len(sizes))))
        )
    if name == "MeanBackward1":
        over = kept(taker, "self_sym_sizes")
        sizes = tuple(map(int, over)) if isinstance(over, (tuple, list)) else ()
        return _averaged(share, sizes, reduced(taker)) if sizes else None
    scale = _scale(taker)
    return None if scale is None else share._replace(weight=share.weight * scale)


def _averaged(share: _Share, sizes: tuple[int, ...], over: set[int]) -> _Share | None:
    count = math.prod(sizes[one] for one in over)
    if count == 0:
        return None
    is_mean = share.is_mean or any(one > 0 and sizes[one] > 1 for one in over)
    return share._replace(weight=share.weight / count, is_mean=is_mean)


def _scale(taker: Node) -> float | None:
    """A number that it is multiplied or divided by, without its sign."""
    if len(inputs(taker)) != 1:
        return None
    if taker.name() == "MulBackward0":
        given = factor(taker)
        return abs(float(given)) if given is not None and given.numel() == 1 else None
    if taker.name() == "DivBackward0":
        given = saved(taker, "other")
        if given is not None and given.numel() == 1 and float(given) != 0:
            return 1 / abs(float(given))
    return None
