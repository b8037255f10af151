"""Losses that tell a right answer from wrong ones, where both are one and the same.

A loss of pairs (`-logsigmoid(right - wrong)`, of preferences or of rankings) learns
nothing from a pair of two equal samples: the difference is exactly 0, whatever the
network. So it is where texts are cut before they begin to differ, or where the wrong one
is drawn from all, the right one among them. A choice among candidates, the right one
first, has another candidate with its score where it was drawn among the wrong ones, too.

Only plain sums and means of such losses are asked, of differences of two computed
scores: what is weighted or selected afterwards may leave equal pairs out, and rows of a
table may be equal because nothing has moved them yet.
"""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING

import torch

from _traincheck.findings import Findings
from _traincheck.graph_nodes import inputs, integer, kept, saved_shape, shape, walk
from _traincheck.places import place
from _traincheck.value_graph import SAME_VALUES, values_of

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Core

    from _traincheck.device_values import DeviceValues
    from _traincheck.places import Place

# Names of the scalars: of many answers, and of some.
MANY = "loss.answers_alike"
SOME = "loss.some_answers_alike"

_FIRST = 16  # backwards of a place in the code that are looked at
_EVERY = 32  # afterwards one of so many
_MAX_PLACES = 64
_MAX_NODES = 64  # between the root and the losses
_MAX_CHAIN = 8  # nodes between a loss and the difference that it is given
_MAX_BEFORE = 64  # nodes before it whose precision is asked
_MOST = 1 << 16  # elements
_FEWEST_LOOKS, _FEWEST = 6, 128  # looks, and answers
_FEWEST_OF_SOME = 512
_SHARE, _SHARE_OF_SOME = 0.05, 0.01
_ALONE = 4  # pairs; where fewer are all equal, others of the same loss are not
_SAME_SCORE = 1e-6

_NLL = "NllLossBackward0"
_LOG_SOFTMAX = "LogSoftmaxBackward0"
_OF_PAIRS = frozenset(("LogSigmoidBackward0", "SoftplusBackward0"))
_DIFFERENCE = "SubBackward0"
_ADDED = frozenset(("AddBackward0", _DIFFERENCE))
_SCALED = frozenset(("DivBackward0", "MulBackward0"))
# What a loss is a sum or mean of, each element with the same weight.
_PLAIN = SAME_VALUES - {"IndexBackward0", "MaskedSelectBackward0", "SliceBackward0"} | {
    "AddBackward0",
    "MeanBackward0",
    "MeanBackward1",
    "NegBackward0",
    "SubBackward0",
    "SumBackward0",
    "SumBackward1",
}
# What may be equal for two: rows of a table, and what ends at a limit.
_NO_SCORES = frozenset(
    (
        "ClampBackward0",
        "ClampBackward1",
        "ClampMinBackward0",
        "EmbeddingBackward0",
        "EmbeddingBagBackward0",
        "GatherBackward0",
        "HardtanhBackward0",
        "IndexSelectBackward0",
        "LeakyReluBackward0",
        "MaxBackward0",
        "MinBackward0",
        "ReluBackward0",
        "SigmoidBackward0",
        "TanhBackward0",
        "torch::autograd::AccumulateGrad",
    )
)
# One of several parts.
_PARTS = frozenset(
    (
        "SelectBackward0",
        "SplitBackward0",
        "SplitWithSizesBackward0",
        "UnbindBackward0",
        "UnsafeSplitBackward0",
    )
)
_PRODUCTS = frozenset(("BmmBackward0", "MmBackward0"))
_SUMS = frozenset(("SumBackward0", "SumBackward1"))
_LEAF = "torch::autograd::AccumulateGrad"
_LOW_PRECISION = (torch.bfloat16, torch.float16)


class _Row:
    """One place in the code that calls backward."""

    def __init__(self) -> None:
        self.looks = 0
        self.tied_looks = 0  # those that found some
        self.answers = 0
        self.tied = 0
        self.apart = False  # were some not alike?

    def add(self, answers: int, tied: int) -> None:
        if tied == answers and not (self.apart and answers < _ALONE):
            return  # the network is its reference still, or gives zeros
        self.apart = self.apart or tied < answers
        self.looks += 1
        self.tied_looks += tied > 0
        self.answers += answers
        self.tied += tied

    def findings(self) -> Findings:
        found = Findings()
        if self.looks < _FEWEST_LOOKS or self.answers < _FEWEST:
            return found
        share = self.tied / self.answers
        again = 2 * self.tied_looks >= self.looks or self.answers < _ALONE * self.looks
        found.add(MANY, share >= _SHARE and again)
        if self.answers >= _FEWEST_OF_SOME:
            found.add(SOME, _SHARE_OF_SOME <= share < _SHARE)
        return found


class TiedAnswers:
    def __init__(self, core: Core, values: DeviceValues) -> None:
        self._core = core
        self._values = values
        self._backwards: collections.Counter[Place] = collections.Counter()
        self._rows: dict[Place, _Row] = {}

    def asks(self) -> Place | None:
        """Called once a backward: where it is, if its loss is looked at."""
        here = place(self._core)
        if here not in self._backwards and len(self._backwards) == _MAX_PLACES:
            return None
        number = self._backwards[here]
        self._backwards[here] += 1
        return here if number < _FIRST or number % _EVERY == 0 else None

    def backward_begins(self, here: Place, roots: list[Node]) -> Findings:
        for loss in _losses(roots):
            row = self._rows.setdefault(here, _Row())
            if loss.name() in _OF_PAIRS:
                self._look_at_pairs(loss, row)
            else:
                self._look_at_choices(loss, row)
        known = self._rows.get(here)
        return Findings() if known is None else known.findings()

    def _look_at_pairs(self, loss: Node, row: _Row) -> None:
        differences: Any = kept(loss, "self")
        if not self._reads(differences) or not _is_of_scores(loss):
            return

        def take(values: list[torch.Tensor]) -> None:
            row.add(values[0].numel(), int((values[0] == 0).sum()))

        self._values.read([differences.detach()], take)

    def _look_at_choices(self, loss: Node, row: _Row) -> None:
        before = inputs(loss)[:1]
        if not before or before[0].name() != _LOG_SOFTMAX:
            return
        if not _are_products(before[0]) or _is_rounded(before[0]):
            return
        scores: Any = kept(before[0], "result")
        targets: Any = kept(loss, "target")
        if not self._reads(scores) or not self._reads(targets) or scores.dim() != 2:
            return

        def take(values: list[torch.Tensor]) -> None:
            counted = _tied_scores(*values)
            if counted is not None:
                row.add(*counted)

        self._values.read([scores.detach(), targets.detach()], take)

    def _reads(self, tensor: Any) -> bool:
        return (
            type(tensor) is torch.Tensor
            and 0 < tensor.numel() <= _MOST
            and tensor.dtype not in _LOW_PRECISION
            and self._values.reads(tensor)
        )


def _losses(roots: list[Node]) -> list[Node]:
    """Those that the roots are plain sums and means of."""
    found: list[Node] = []
    todo, seen = list(roots), set(roots)
    while todo:
        node = todo.pop()
        if node.name() in _OF_PAIRS or node.name() == _NLL:
            found.append(node)
        elif node.name() in _PLAIN or _is_scaled(node):
            for giver in inputs(node):
                if giver not in seen and len(seen) < _MAX_NODES:
                    seen.add(giver)
                    todo.append(giver)
    return found


def _is_scaled(node: Node) -> bool:
    """Is it given one thing with a gradient, and a number?"""
    following = node.next_functions
    if node.name() not in _SCALED or len(inputs(node)) != 1:
        return False
    is_first = following[0][0] is not None
    by = saved_shape(node, "other" if is_first else "self")
    return is_first and by is not None and math.prod(by) == 1


def _is_of_scores(loss: Node) -> bool:
    """Is it given the difference of two scores that were computed alike?"""
    node = loss
    for _ in range(_MAX_CHAIN):
        givers = inputs(node)
        if len(givers) != 1:
            return False
        node = givers[0]
        if node.name() == _DIFFERENCE and len(inputs(node)) == 2:
            return _are_scores(node) and not _is_rounded(node)
        is_moved = node.name() in _ADDED and len(inputs(node)) == 1
        if not is_moved and node.name() not in _PLAIN and not _is_scaled(node):
            return False
        if node.name() in _SUMS or node.name().startswith("Mean"):
            return False
    return False


def _are_scores(difference: Node) -> bool:
    sizes = shape(difference)
    if sizes is None or integer(difference, "alpha") not in (None, 1):
        return False
    for giver in inputs(difference):
        names = {one.name() for one in _whole([giver])}
        # Of another shape: each is compared with all, itself among them. A part of
        # what was split has no shape of its own.
        if not names or names & _NO_SCORES or shape(giver) not in (sizes, None):
            return False
    return True


def _whole(nodes: list[Node]) -> list[Node]:
    """What computed the values that these hand on, if as parts of it or times a
    number."""
    for _ in range(_MAX_CHAIN):
        nodes = values_of(nodes)
        if not any(one.name() in _PARTS or _is_scaled(one) for one in nodes):
            break
        nodes = [
            before
            for one in nodes
            for before in (
                inputs(one) if one.name() in _PARTS or _is_scaled(one) else [one]
            )
        ]
    return nodes


def _is_rounded(node: Node) -> bool:
    """Was something right before it computed in 16 bits, where many are equal?"""
    for before in walk([node], _MAX_BEFORE):
        results: Any = getattr(before, "_input_metadata", ())
        if any(result.dtype in _LOW_PRECISION for result in results):
            return True
    return False


def _are_products(choice: Node) -> bool:
    """Are the scores products of two things that were computed, not of a layer?"""
    todo = inputs(choice)
    for _ in range(_MAX_CHAIN):
        if not todo:
            return False
        givers = values_of(todo)
        if all(one.name() in _PRODUCTS or one.name() in _SUMS for one in givers):
            before = (values_of([each]) for one in givers for each in inputs(one))
            return not any(one.name() == _LEAF for each in before for one in each)
        if len(givers) != 1 or givers[0].name() not in _SCALED:
            return False
        # By a number, or by a temperature that is trained.
        todo = [one for one in inputs(givers[0]) if shape(one) not in ((), (1,))]
    return False


def _tied_scores(scores: torch.Tensor, targets: torch.Tensor) -> tuple[int, int] | None:
    """Wrong answers, and those of them that have the score of the right one; None: the
    right answers are in different places, among those of others."""
    if targets.shape != scores.shape[:1] or scores.shape[1] < 3:
        return None
    first = int(targets[0])
    if bool((targets != first).any()) or not 0 <= first < scores.shape[1]:
        return None
    right = scores[:, first : first + 1]
    same = (scores - right).abs() <= _SAME_SCORE * right.abs().clamp(min=1.0)
    count = scores.shape[1] - 1
    tied = same.sum(1) - 1
    told_apart = (tied < count) & right.isfinite()[:, 0]
    rows = int(told_apart.sum())
    return (rows * count, int(tied[told_apart].sum())) if rows else None
