"""What the graph of a policy's loss says: of its entropy, and of the ratio of the new
policy to the old one.

An exploring policy is rewarded for its entropy: the loss falls as it rises. PPO's ratio
is 1 before the first update, since old and new policy are the same: where it is not, the
two compute the probability of an action in different ways (Schulman et al., 2017,
arXiv:1707.06347, equations 6 and 7). Robust policies move the new one's mean at random on
purpose (Rahman and Xue, 2022, arXiv:2212.07536).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.findings import Findings
from _traincheck.graph_nodes import Graph, factor, inputs, kept, saved, shape
from _traincheck.hyper_parameters import number_of
from _traincheck.value_graph import SAME_VALUES, values_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

# Names of the scalars.
LOWERS_ENTROPY = "loss.lowers_entropy"
STARTS_APART = "loss.ratio_starts_apart"

_MAX_NODES = 512
_SOFTMAX = "SoftmaxBackward0"
_EXPONENTIAL = "ExpBackward0"
_LOGARITHM = "LogBackward0"
_PRODUCT = "MulBackward0"
_ADDED = "AddBackward0"
# What adds elements up, and hands their sign on.
_SUMS = frozenset(
    f"{name}Backward{number}"
    for name, numbers in (
        ("Add", "0"),
        ("Mean", "01"),
        ("Squeeze", "012"),
        ("Sum", "01"),
        ("View", "0"),
    )
    for number in numbers
)
_SCALED = frozenset(("DivBackward0", _PRODUCT))
_NEGATED = frozenset(("NegBackward0", "SubBackward0"))
_LOGARITHMS = frozenset(("LogSoftmaxBackward0", "SubBackward0"))
_HALVES = frozenset(("SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0"))
_CLAMPS = frozenset(("ClampBackward0", "ClampBackward1"))
# Wider limits are those of variances and temperatures.
_LOWEST, _HIGHEST = 0.3, 3.0
_TOLERANCE = 0.01  # of a ratio that should be 1


def findings(roots: list[Node]) -> Findings:
    found = Findings()
    graph = Graph(roots, _MAX_NODES)
    for ratio in clipped_ratios(graph):
        found.add(STARTS_APART, _is_apart(ratio))
    for entropy, sign in _entropies(roots):
        if _acts(graph, entropy):
            found.add(LOWERS_ENTROPY, sign > 0)
    for sign in _signs_of_deviations(graph, roots):
        found.add(LOWERS_ENTROPY, sign > 0)
    return found


def clipped_ratios(graph: Graph) -> list[Node]:
    """Exponentials that are clipped to a range around 1."""
    exponentials = (node for node in graph.nodes if node.name() == _EXPONENTIAL)
    return [node for node in exponentials if _is_clipped(graph, node)]


def _is_clipped(graph: Graph, ratio: Node) -> bool:
    """Is it clipped to a range around 1, as PPO's is?"""
    for taker in graph.takers(ratio):
        if taker.name() in _CLAMPS:
            low, high = (number_of(kept(taker, name)) for name in ("min", "max"))
            if low is None or high is None:
                continue
            if _LOWEST < low < 1 < high < _HIGHEST:
                return True
    return False


def _is_apart(ratio: Node) -> bool | None:
    """Are most ratios others than 1? None: not known."""
    values = saved(ratio, "result")
    if values is None or not values.is_floating_point() or _is_moved(ratio):
        return None
    apart = (values - 1).abs() > _TOLERANCE
    return bool(apart.sum() * 2 > values.numel())


def _is_moved(ratio: Node) -> bool:
    """Is something without a gradient added to the mean of a normal distribution, in
    (value - mean)^2?"""
    todo, seen = [ratio], {ratio}
    while todo and len(seen) < _MAX_NODES:
        for node in inputs(todo.pop()):
            if node.name() == "PowBackward0":
                means = values_of([m for d in inputs(node) for m in inputs(d)])
                if any(m.name() == _ADDED and len(inputs(m)) == 1 for m in means):
                    return True
            elif node not in seen:
                seen.add(node)
                todo.append(node)
    return False


def _entropies(roots: list[Node]) -> list[tuple[Node, int]]:
    """Products p log p whose sums the losses have as terms; 1: the loss rises with the
    entropy, which is their negative sum; -1: it falls."""
    found: list[tuple[Node, int]] = []
    todo = [(root, 1) for root in roots]
    seen = set(roots)
    while todo:
        node, sign = todo.pop()
        for term, own in _terms(node):
            if term in seen or len(seen) == _MAX_NODES:
                continue
            seen.add(term)
            if _logarithm_of_shares(term) is not None:
                found.append((term, -sign * own))
            else:
                todo.append((term, sign * own))
    return found


def _signs_of_deviations(graph: Graph, roots: list[Node]) -> list[int]:
    """As _entropies, of a normal distribution from which actions are drawn: the losses
    have the logarithm of its deviation as a term of its own, for each action or summed.
    In the likelihood of given values it is a term beside their distance."""
    own = [node for node in graph.nodes if _is_of_drawn(graph, node)]
    deviations = [values_of(inputs(node)) for node in own]
    # log_std, of exp(log_std); a half of what a layer gives is no node of its own.
    begins = [
        values_of(inputs(one[0]))
        for one in deviations
        if len(one) == 1 and one[0].name() == _EXPONENTIAL
    ]
    begins = [one for one in begins if one and one[0].name() not in _HALVES]
    found: list[int] = []
    todo = [(root, 1) for root in roots] if own else []
    seen = {node for node, _ in todo}
    while todo:
        node, sign = todo.pop()
        terms = _terms(node)
        sizes = shape(node)
        if len(terms) > 1 and (sizes is None or math.prod(sizes) != 1):
            continue
        for term, of_term in terms:
            if term in seen or len(seen) == _MAX_NODES:
                continue
            seen.add(term)
            is_log = term.name() == _LOGARITHM and term not in own
            if is_log and values_of(inputs(term)) in deviations:
                found.append(sign * of_term)
            elif values_of([term]) in begins:
                found.append(sign * of_term)
            else:
                todo.append((term, sign * of_term))
    return found


def _is_of_drawn(graph: Graph, logarithm: Node) -> bool:
    """Is it log(deviation) in log probabilities that are weighted by advantages?
    -(value - mean)^2 / (2 variance) - log(deviation)"""
    if logarithm.name() != _LOGARITHM:
        return False
    return any(
        taker.name() == "SubBackward0"
        and [one.name() for one in inputs(taker)] == ["DivBackward0", _LOGARITHM]
        and _is_weighted(graph, taker)
        for taker in graph.takers(logarithm)
    )


def _terms(node: Node) -> list[tuple[Node, int]]:
    """What it adds up, and with which sign; empty: it is no sum, or not known."""
    name = node.name()
    given = [one for one, _ in node.next_functions]
    if name in _SUMS:
        signs = [1] * len(given)
    elif name == "NegBackward0":
        signs = [-1]
    elif name == "SubBackward0":
        signs = [1, -1]
    elif name in _SCALED and len(inputs(node)) == 1:
        signs = [_sign_of(node)] * len(given)
    else:
        return []
    return [(one, sign) for one, sign in zip(given, signs) if one is not None and sign]


def _sign_of(scaled: Node) -> int:
    """Of the one number that it multiplies or divides by; 0: not known."""
    by = saved(scaled, "other")
    if scaled.name() == _PRODUCT:
        by = factor(scaled)
    if by is None or by.numel() != 1 or by.is_complex():
        return 0
    return int(by > 0) - int(by < 0)


def _logarithm_of_shares(product: Node) -> Node | None:
    """log p, of a product p log p; None: it is none."""
    if product.name() != _PRODUCT or len(inputs(product)) != 2:
        return None
    both = [_before_clamps(giver) for giver in values_of(inputs(product))]
    for one, other in (both, both[::-1]) if len(both) == 2 else ():
        is_share = other.name() in (_SOFTMAX, _EXPONENTIAL)
        if one.name() in _LOGARITHMS and is_share:
            return one
    return None


def _before_clamps(node: Node) -> Node:
    """torch's Categorical clamps logarithms from below."""
    while node.name() in _CLAMPS:
        givers = values_of(inputs(node))
        if len(givers) != 1:
            break
        node = givers[0]
    return node


def _acts(graph: Graph, entropy: Node) -> bool:
    """Are logarithms of single actions' probabilities taken of the same policy, and
    weighted by advantages? Those of labels are added up as they are."""
    logarithm = _logarithm_of_shares(entropy)
    if logarithm is None:
        return False
    return any(
        _takes_one_each(node)
        and values_of(inputs(node)[:1]) == [logarithm]
        and _is_weighted(graph, node)
        for node in graph.reached_from(logarithm)
    )


def _is_weighted(graph: Graph, chosen: Node) -> bool:
    """Is something else done to some of them than that they are added up?"""
    sizes = shape(chosen)
    if sizes is None or math.prod(sizes) == 1:
        return True  # of one action, an advantage is one number
    todo, seen = [chosen], {chosen}
    while todo:
        for taker in graph.takers(todo.pop()):
            is_sum = taker.name() in _SUMS or taker.name() in _NEGATED
            if not is_sum and taker.name() not in SAME_VALUES:
                if taker.name() not in _SCALED or len(inputs(taker)) != 1:
                    return True
                if _sign_of(taker) == 0:
                    return True
            total = shape(taker)
            if taker not in seen and total is not None and math.prod(total) != 1:
                seen.add(taker)
                todo.append(taker)
    return False


def _takes_one_each(node: Node) -> bool:
    """One element of each row, by gather or by two indices?"""
    if node.name() == "IndexBackward0":
        indices = kept(node, "indices")
        return isinstance(indices, (list, tuple)) and len(indices) == 2
    return str(node.name()) == "GatherBackward0"
