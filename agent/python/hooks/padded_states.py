"""States of recurrences that have gone through the padding behind a text.

A recurrence does not know where a text ends. Its last state is then that behind the
padding, and depends on how long the others of the batch are. Packed sequences end where
their texts do; so does the state at the last token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.batch_axis import steps_and_sequences
from _traincheck.graph_nodes import NLL, Graph, factor, integer
from _traincheck.padded_means import ends_rows

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node

# Names of the scalars.
NAME = "loss.reads_padded_state"
NOT_PADDING = "loss.padding_idx_is_a_token"

_PACKED = "PackPaddedSequenceBackward0"
_TOGETHER = frozenset(("CatBackward0", "StackBackward0"))
_UNBIND = "UnbindBackward0"
_HANDED_ON = frozenset(
    (
        "CatBackward0",
        "CloneBackward0",
        "PermuteBackward0",
        "TransposeBackward0",
        "TransposeBackward1",
    )
)
_MOST_HANDED_ON = 4
_MOST = 1 << 12  # elements of a mask
_MASKED = "WhereBackward0"
_WORDS = 64  # of a vocabulary, at least, whose padding is not one of the first two
_LEAST = 2  # rows with so much padding, and so much padding
_SHARE = 1 / 4  # of the texts that the padding_idx is in


def padding_of(embedding: Node, tokens: torch.Tensor) -> int | None:
    """The token that fills up the rows of int64[samples, positions]; None: none does.

    Without a padding_idx it is one that stands at the ends of rows alone, several
    times in a row. A small vocabulary may have a state that is never left."""
    told = integer(embedding, "padding_idx")
    if told is not None and told >= 0:
        return told
    return _filling(embedding, tokens)


def _filling(embedding: Node, tokens: torch.Tensor) -> int | None:
    last = int(tokens[:, -1].mode().values)
    fill = tokens == last
    words = integer(embedding, "weight_sym_argsize_0")
    if last > 1 and (words is None or words < _WORDS):
        return None
    repeated = int((fill.sum(1) >= _LEAST).sum()) >= _LEAST
    return last if repeated and ends_rows((~fill).int()) else None


def real_tokens(embedding: Node, tokens: torch.Tensor) -> torch.Tensor | None:
    """bool[samples, positions]: the rest is padding behind the texts; None: there is
    none."""
    padding = padding_of(embedding, tokens)
    if padding is None or not ends_rows((tokens != padding).int()):
        return None
    return tokens != padding


def tables(embedding: Node, tokens: torch.Tensor) -> list[torch.Tensor]:
    """The tokens as [samples, positions], as far as it can be told. Rows that are sorted
    by their lengths look like padded texts from both sides."""
    both = [tokens, tokens.t()]
    if tokens.shape[0] != tokens.shape[1]:
        return both
    fit = [one for one in both if real_tokens(embedding, one) is not None]
    return [] if len(fit) == 2 else fit or both


def is_token(embedding: Node, tokens: torch.Tensor) -> bool | None:
    """Is the padding_idx a token within texts, and another one fills them up? None: it
    has no padding_idx, or nothing fills them up."""
    told = integer(embedding, "padding_idx")
    if told is None or told < 0:
        return None
    fill = _filling(embedding, tokens)
    if fill is None or fill == told:
        return None if fill is None else False
    other = (tokens != told) & (tokens != fill)
    before = other.cumsum(1) > 0
    behind = other.flip(1).cumsum(1).flip(1) > 0
    within = (tokens == told) & before & behind
    return bool(within.any(1).float().mean() >= _SHARE)


def is_read(graph: Graph, reached: set[Node], samples: int, steps: int) -> bool | None:
    """Is the last state of a recurrence all that is used of it? None: there is none,
    or more of it is used.

    reached: what was computed of so many padded texts of so many tokens."""
    if any(node.name() == _PACKED for node in reached):
        return False
    layers = [node for node in reached if steps_and_sequences(node) == (steps, samples)]
    last = [one for one in layers if not _feeds(graph, one, layers)]
    if not last:
        return None
    read = [_is_last_state(graph, layer, steps) for layer in last]
    return True if all(read) else None


def _feeds(graph: Graph, layer: Node, others: list[Node]) -> bool:
    reached = graph.reached_from(layer)
    return any(other in reached for other in others if other is not layer)


def _is_last_state(graph: Graph, layer: Node, steps: int) -> bool:
    if layer.name() == _UNBIND:  # a recurrence of single steps
        reached = graph.reached_from(layer)
        if any(map(_keeps_state, reached)):
            return False  # padding may leave the state as it is
        if sum(node.name() in NLL for node in reached) >= steps:
            return False  # each step may have a loss of its own
        outputs = [
            node
            for node in reached
            if node.name() in _TOGETHER and len(node.next_functions) == steps
        ]
        return all(_is_last_alone(graph, output, steps) for output in outputs)
    for taker in graph.takers(layer):
        for giver, place in taker.next_functions:
            if giver is not layer or place > 0:
                continue  # the state itself
            if not _hands_on_last(graph, taker, steps):
                return False
    return True


def _keeps_state(node: Node) -> bool:
    """Is it a choice between the new state and the former, by a mask?"""
    if node.name() == _MASKED:
        return True
    mask = factor(node)
    if mask is None or mask.numel() > _MOST or mask.is_complex():
        return False
    zeros = mask == 0
    return bool(zeros.any()) and bool((zeros | (mask == 1)).all())


def _is_last_alone(graph: Graph, output: Node, steps: int) -> bool:
    return all(_hands_on_last(graph, one, steps) for one in graph.takers(output))


def _hands_on_last(graph: Graph, node: Node, steps: int) -> bool:
    """Of all states, the last one alone?"""
    for _ in range(_MOST_HANDED_ON):
        if node.name() == "SelectBackward0":
            return integer(node, "index") in (-1, steps - 1)
        takers = graph.takers(node)
        if node.name() not in _HANDED_ON or len(takers) != 1:
            return False
        node = takers[0]
    return False
