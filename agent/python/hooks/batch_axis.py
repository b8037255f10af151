"""A batch whose samples are taken for the steps of one sequence.

torch's recurrent modules and attention take [steps, samples, features] unless they
are told that the batch comes first. Given the batch first, they mix samples with each
other, and no shape is wrong. The labels, one a sample, tell how many there are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from _traincheck.graph_nodes import dimension, inputs, kept, reduced, saved, shape
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node

    from _traincheck.graph_nodes import Graph

_RECURRENT = "MkldnnRnnLayerBackward0"
_RECURRENT_ON_DEVICE = "CudnnRnnBackward0"
_STEPS = "UnbindBackward0"
_PARAMETER = "torch::autograd::AccumulateGrad"
_PRODUCT = "MulBackward0"
_TOTALS = frozenset(("MeanBackward1", "SumBackward1"))
_FEWEST_CALLS = 3  # of a recurrence, one a step
RECURRENCES = frozenset((_RECURRENT, _RECURRENT_ON_DEVICE, _STEPS))


def labelled_samples(loss: Node) -> int | None:
    """None: the loss has no label of its own for each sample."""
    labels = saved(loss, "target")
    if labels is None or labels.dim() not in (1, 2) or len(labels) < 2:
        return None
    return len(labels) if labels.numel() == len(labels) else None


def steps_and_sequences(node: Node) -> tuple[int, int] | None:
    """What a recurrence goes through; None: the node is none."""
    results: Any = getattr(node, "_input_metadata", ())  # none before torch 2.5
    name = node.name()
    if not results:
        return None
    if len(results[0].shape) == 3 and name in (_RECURRENT, _RECURRENT_ON_DEVICE):
        steps, sequences = int(results[0].shape[0]), int(results[0].shape[1])
        # The one of a device takes the batch as it is given.
        swapped = name == _RECURRENT_ON_DEVICE and node._saved_batch_first
        return (sequences, steps) if swapped else (steps, sequences)
    if name == _STEPS and len(results[0].shape) == 2:
        return len(results), int(results[0].shape[0])
    return None


def softmax_sizes(node: Node) -> tuple[tuple[int, ...], int] | None:
    """Sizes, and the dimension that adds up to 1; None: it is no softmax of several
    dimensions."""
    sizes = shape(node) if node.name() == "SoftmaxBackward0" else None
    over = None if sizes is None else dimension(node, sizes)
    if sizes is None or over is None or len(sizes) < 2:
        return None
    if all(giver.name() == _PARAMETER for giver in values_of(inputs(node))):
        return None  # shares of layers or experts, as many as there are
    return sizes, over


def is_summed(graph: Graph, softmax: Node, over: int) -> bool:
    """Is what its weights multiply added up over the dimension of the softmax? The parts
    of one sample that lie there are pooled on purpose."""
    sizes = shape(softmax)
    products = [softmax] + [
        one for one in graph.takers(softmax) if one.name() == _PRODUCT
    ]
    return any(
        total.name() in _TOTALS and shape(one) == sizes and reduced(total) == {over}
        for one in products
        for total in graph.takers(one)
    )


def pooled_weights(total: Node) -> tuple[tuple[int, ...], int, int] | None:
    """Sizes of the weights by which a sum multiplies what it adds up, the dimension over
    which they add up to 1, and that of the sum; None: it has no such weights."""
    summed = reduced(total)
    product = inputs(total)[:1]
    if len(summed) != 1 or not product or product[0].name() != "MulBackward0":
        return None
    factors = inputs(product[0])
    if len(factors) != 2:  # both are computed
        return None
    found = []
    for factor in factors:
        if factor.name() == "UnsqueezeBackward0":
            factor = (inputs(factor) or [factor])[0]
        weights = softmax_sizes(factor)
        sizes = shape(product[0])
        if weights and sizes and sizes[: len(weights[0])] == weights[0]:
            found.append((*weights, min(summed)))
    # Of two softmaxes, the one over what is added up pools.
    pooling = [one for one in found if one[1] in summed]
    return next(iter(pooling + found), None)


def is_pooled_over_batch(
    sizes: tuple[int, ...], over: int, summed: int, samples: int
) -> bool | None:
    """Is a weighted sum over one dimension of weights that add up to 1 over another, that
    of the samples? None: it cannot be told."""
    if sizes.count(samples) != 1 or summed >= len(sizes) or sizes[summed] == samples:
        return None
    return over != summed and sizes[over] == samples


def is_over_batch(sizes: tuple[int, ...], over: int, samples: int) -> bool | None:
    """Do weights add up to 1 over the samples? None: it cannot be told."""
    if sizes.count(samples) != 1 or sizes[0] != samples:
        return None
    return None if math.prod(sizes) == samples else over == 0


def keeps_one_of(graph: Graph, steps: int, sequences: int, averages: bool) -> bool:
    """Is one place of [steps, sequences, ...] kept for each step, as the last step of a
    sample is where the batch comes first? averages: do the mean of all, and the sum of
    those that a mask leaves, count, too?"""
    for node in graph.nodes:
        sizes = kept(node, "self_sym_sizes")
        if not isinstance(sizes, (tuple, list)) or len(sizes) < 2:
            continue
        if tuple(sizes[:2]) != (steps, sequences):
            continue
        name = node.name()
        if name == "SelectBackward0" and dimension(node, tuple(sizes)) == 1:
            return True
        if name == "IndexBackward0" and shape(node) == (steps, *sizes[2:]):
            return True
        if not averages or name not in _TOTALS or reduced(node) != {1}:
            continue
        if name == "MeanBackward1" or _PRODUCT in (one.name() for one in inputs(node)):
            return True
    return False


def is_mixed(steps: int, sequences: int, samples: int) -> bool | None:
    """None: it cannot be told, as in a batch of one."""
    if sequences == 1 or steps == sequences:
        return None
    # Windows of a sample are sequences of their own.
    return steps == samples and sequences % samples != 0


def goes_step_by_step(
    graph: Graph, recurrences: dict[Node, tuple[int, int]], texts: int, steps: int
) -> bool | None:
    """Does a recurrence that is called for each step of so many padded texts take the
    texts of a call for the steps of one sequence? recurrences: with (steps, sequences),
    of what was computed of the texts. None: it is not called for each step."""
    if steps < _FEWEST_CALLS or texts < 2:
        return None
    swapped = (texts, 1)
    calls = [one for one, through in recurrences.items() if through == swapped]
    if len(calls) < steps - 1:
        return None
    # Each call goes on from the state, or the answer, of the one before it. The first is
    # the farthest from the loss, or the nearest where their answers are put together.
    for first in (calls[0], calls[-1]):
        onwards = graph.reached_from(first)
        if sum(_is_given(graph, call, onwards) for call in calls) >= steps - 1:
            return True
    return None


def _is_given(graph: Graph, call: Node, earlier: set[Node]) -> bool:
    """Is it given something of these? One of single steps takes its input apart, and the
    state is added to a step, or to its gates."""
    if call.name() != _STEPS or call in earlier:
        return call in earlier
    gates = graph.takers(call)
    sums = (taker for gate in gates for taker in graph.takers(gate))
    return not earlier.isdisjoint((*gates, *sums))
