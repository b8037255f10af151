"""Ratios of the new policy to the old one that stay 1, although the policy has moved.

PPO and its relatives go over the same samples several times. The ratio is 1 at the first
time alone; from then on the clipping keeps the new policy near the one that acted. Where
the old probabilities are those of the present policy, computed anew or detached in the
loss, each ratio is exactly 1, nothing is ever clipped, and the samples weigh as if the
present policy had drawn them. Who goes over samples once may write it so.

Samples are known again by what the policy was given and what it chose. States that
return by themselves have been chosen for in more than one way, unless the policy hardly
leaves a choice.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch

from _traincheck.device_values import first_of
from _traincheck.graph_nodes import Graph, inputs, integer, kept, walk
from _traincheck.places import place
from _traincheck.policy_graph import clipped_ratios
from _traincheck.value_graph import values_of

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Core

    from _traincheck.device_values import DeviceValues
    from _traincheck.places import Place

# Name of the scalar.
NAME = "loss.ratio_stays_one"

_FIRST = 24  # backwards of a place in the code that are looked at
_BACKWARDS = 1024  # in all, behind which nobody asks
_MAX_PLACES = 16
_MAX_NODES = 512
_ROWS, _WIDTH = 256, 256  # of samples that are read
_MOST = 1 << 20  # elements of logarithms
_PARAMETERS, _ELEMENTS = 8, 32  # that show whether the policy moves
_SEEN = 1 << 13  # samples
_FEWEST_LOOKS, _FEWEST_REPEATS = 8, 3
_FEWEST_ROWS = 8
_DISTINCT = 0.9  # of the samples of a backward
_SURE = 0.9  # probability of what was chosen
_MOVES = 1e-5  # of the largest element
_LEAF = "torch::autograd::AccumulateGrad"
# What layers keep of their input, and which of their inputs it is.
_INPUTS = {
    "AddmmBackward0": ("mat1", 1),
    "ConvolutionBackward0": ("input", 0),
    "LinearBackward0": ("input", 0),
    "MmBackward0": ("self", 0),
}


class _Row:
    """One place in the code that calls backward."""

    def __init__(self) -> None:
        self.looks = 0
        self.repeats = 0  # looks with samples that an older policy was trained with
        self.leaves = False  # was a ratio other than 1?
        self.leaves_again = False  # at such a look
        self.is_unclear = False
        self._moves = 0  # of the policy
        self._parameters: list[torch.Tensor] = []
        self._seen: dict[int, tuple[int, int]] = {}  # given -> chosen, moves by then

    def take(self, values: list[torch.Tensor]) -> None:
        """values: ratios, what the policy was given and chose, its logarithms (maybe of
        two parts that are subtracted), and its parameters."""
        ratios, given, chosen, logarithms, normalisers, *parameters = values
        self.looks += 1
        self._compare(parameters)
        leaves = bool((ratios != 1).any())
        self.leaves = self.leaves or leaves
        if normalisers.numel():
            logarithms = logarithms - normalisers
        probabilities = logarithms.gather(-1, chosen).double().exp()
        if float(probabilities.mean()) > _SURE:
            self.is_unclear = True
            return
        states, choices = _hashes(given), _hashes(chosen)
        if len(set(states)) < _DISTINCT * len(states):
            self.is_unclear = True
            return
        if self._count(states, choices) * 2 >= len(states):
            self.repeats += 1
            self.leaves_again = self.leaves_again or leaves

    def _compare(self, parameters: list[torch.Tensor]) -> None:
        before, self._parameters = self._parameters, [one.clone() for one in parameters]
        if len(before) == len(parameters):
            pairs = zip(before, parameters)
            self._moves += any(_moves(one, other) for one, other in pairs)

    def _count(self, states: list[int], choices: list[int]) -> int:
        """Samples that are there again, since the policy has moved."""
        again = 0
        for state, choice in zip(states, choices):
            known = self._seen.get(state)
            if known is None:
                if len(self._seen) < _SEEN:
                    self._seen[state] = choice, self._moves
            elif known[0] != choice:
                self.is_unclear = True
            else:
                again += known[1] < self._moves
        return again

    def finding(self) -> float | None:
        if self.is_unclear:
            return None
        if self.leaves:
            return 0.0 if self.leaves_again else None
        enough = self.looks >= _FEWEST_LOOKS and self.repeats >= _FEWEST_REPEATS
        return 1.0 if enough else None


class StillRatios:
    def __init__(self, core: Core, values: DeviceValues) -> None:
        self._core = core
        self._values = values
        self._backwards = 0
        self._looked: collections.Counter[Place] = collections.Counter()
        self._rows: dict[Place, _Row] = {}

    def asks(self) -> Place | None:
        """Called once a backward: where it is, if its loss is looked at."""
        if self._backwards == _BACKWARDS:
            return None
        self._backwards += 1
        here = place(self._core)
        if here not in self._looked and len(self._looked) == _MAX_PLACES:
            return None
        self._looked[here] += 1
        return here if self._looked[here] <= _FIRST else None

    def backward_begins(self, here: Place, roots: list[Node]) -> float | None:
        """1: the ratio of this place's losses stays 1; None: there is none, or samples
        have not come again."""
        ratios = clipped_ratios(Graph(roots, _MAX_NODES))
        if len(ratios) == 1:
            row = self._rows.setdefault(here, _Row())
            tensors = self._tensors(ratios[0])
            if tensors is None:
                row.is_unclear = True
            else:
                self._values.read(tensors, row.take)
        known = self._rows.get(here)
        return None if known is None else known.finding()

    def _tensors(self, ratio: Node) -> list[torch.Tensor] | None:
        """As _Row.take gets them; None: not known."""
        nodes = list(walk([ratio], _MAX_NODES))
        choices = [node for node in nodes if node.name() == "GatherBackward0"]
        if len(choices) != 1:
            return None
        logarithms = _logarithms(choices[0])
        behind = list(walk(choices, _MAX_NODES))
        found: list[Any] = [kept(ratio, "result"), _given(behind)]
        found += [kept(choices[0], "index"), *logarithms]
        leaves = [getattr(n, "variable", None) for n in behind if n.name() == _LEAF]
        found += [one for one in leaves if one is not None][:_PARAMETERS]
        if len(found) < 6 or not all(map(self._reads, found)):
            return None
        if not _fit(*found[:4]) or integer(choices[0], "dim") not in (
            -1,
            found[2].dim() - 1,
        ):
            return None
        rows = [one.detach()[:_ROWS] for one in found[:5]]
        if any(one.numel() > _MOST for one in rows):
            return None
        return rows + [first_of(one, _ELEMENTS) for one in found[5:]]

    def _reads(self, tensor: Any) -> bool:
        kind = type(tensor)
        plain = kind is torch.Tensor or kind is torch.nn.Parameter
        return plain and tensor.layout == torch.strided and self._values.reads(tensor)


def _logarithms(choice: Node) -> tuple[Any, Any]:
    """Of which one each is chosen: scores, and what is subtracted from them."""
    givers = values_of(inputs(choice)[:1])
    if len(givers) != 1:
        return None, None
    result = kept(givers[0], "result")
    if givers[0].name() == "LogSoftmaxBackward0" and result is not None:
        return result, result[:0]
    for node in inputs(givers[0]) if givers[0].name() == "SubBackward0" else ():
        if node.name() == "LogsumexpBackward0":
            return kept(node, "self"), kept(node, "result")
    return None, None


def _given(nodes: list[Node]) -> Any:
    """Words, or what the nearest layer was given that is no result of others; None: not
    known."""
    for node in nodes:  # recurrences begin with a state, which is no result either
        if node.name() == "EmbeddingBackward0":
            return kept(node, "indices")
    for node in nodes:
        key, number = _INPUTS.get(node.name(), ("", 0))
        if key and node.next_functions[number][0] is None:
            return kept(node, key)
    return None


def _fit(
    ratios: torch.Tensor,
    given: torch.Tensor,
    chosen: torch.Tensor,
    logarithms: torch.Tensor,
) -> bool:
    """Have they a row for each sample?"""
    if not ratios.dim() or len(ratios) < _FEWEST_ROWS or not given.dim():
        return False
    same = chosen.shape[:-1] == logarithms.shape[:-1]
    return same and len(given) == len(ratios) == len(chosen)


def _hashes(rows: torch.Tensor) -> list[int]:
    flat = rows.reshape(len(rows), -1)[:, :_WIDTH]
    return [hash(repr(row)) for row in flat.tolist()]


def _moves(before: torch.Tensor, now: torch.Tensor) -> bool:
    if before.shape != now.shape or not now.numel():
        return False
    change = (now.double() - before.double()).abs().max()
    return bool(change > _MOVES * now.double().abs().max())
