"""Samples through which no gradient reaches what they were drawn from.

Normal.sample() has no gradient, rsample() has. A sample without one is right where the
likelihood of what was drawn is trained (log_prob, gaussian_nll_loss, the same by hand):
then that has the gradient. Looked at is what a model draws in its training forward;
actions that are tried out are drawn elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, walk
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Args, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.step_lines import StepLines
    from _traincheck.watch import Watch

# Name of the scalar of an optimizer.
NAME = "opt.samples_without_gradient"

_LOOKS = 8  # at losses
_MOST_NODES = 256
_MOST_MEANS = 16  # of a step
_DIFFERENCES = ("SubBackward0", "RsubBackward0")


class BlindSamples:
    def __init__(self, lines: StepLines, awake: Awake) -> None:
        self._lines = lines
        self._awake = awake
        self._in_forward = False
        self._sampled = False  # with a mean that needs a gradient
        self._asked = False  # was a sample with a gradient, or a likelihood, ever?
        # Numbers of the nodes that gave the means, since the last step. The nodes would
        # keep their graphs.
        self._means: set[int] = set()
        self._looks = 0

    def forward_begins(self) -> None:
        """Called at outermost ones that train."""
        self._in_forward = True

    def forward_ended(self) -> None:
        self._in_forward = False

    def samples(self, distribution: Any) -> None:
        if not self._in_forward or not torch.is_grad_enabled():
            return
        mean = getattr(distribution, "loc", None)
        if isinstance(mean, torch.Tensor):
            self._sampled = self._sampled or mean.requires_grad
            if mean.requires_grad:
                self._lines.here(NAME)
            if mean.grad_fn is not None and len(self._means) < _MOST_MEANS:
                self._means |= _numbers_of(mean.grad_fn)
            self._awake.add(NAME)

    def asked(self) -> None:
        self._asked = True
        self._awake.add(NAME)

    def awaits_loss(self) -> bool:
        return bool(self._means) and not self._asked and self._looks < _LOOKS

    def backward_begins(self, roots: list[Node]) -> None:
        """REQUIRES: awaits_loss(). Looks for a likelihood without log_prob."""
        self._looks += 1
        nodes = walk(roots, _MOST_NODES)
        self._asked = any(_is_likelihood(node, self._means) for node in nodes)

    def optimizer_steps(self) -> float | None:
        """1: samples had no gradient, and nothing else has one; None: none were drawn
        of a trained distribution."""
        self._means.clear()
        if not self._sampled:
            return 0.0 if self._asked else None
        return float(not self._asked)


def _numbers_of(node: Node) -> set[int]:
    """Of the node and, where it only repeats what another one gave, of that one."""
    nodes = [node, *inputs(node)] if node.name() == "ExpandBackward0" else [node]
    asked: list[Any] = [getattr(one, "_sequence_nr", None) for one in nodes]
    return {ask() for ask in asked if ask is not None}


def _is_likelihood(node: Node, means: set[int]) -> bool:
    """Does it weigh the difference of a mean and what is given, or its square, by what
    is trained, or divide its square? (A distance to a prior is divided first.)"""
    following = [giver for giver, _ in node.next_functions]
    if len(following) != 2:
        return False
    first, second = following
    if node.name() == "DivBackward0":
        squares = first is not None and first.name() == "PowBackward0"
        trained = second is not None
        return (squares or trained) and _is_difference(first, means)
    if node.name() == "MulBackward0" and first is not None and second is not None:
        return _is_difference(first, means) or _is_difference(second, means)
    return False


def _is_difference(node: Node | None, means: set[int]) -> bool:
    if node is not None and node.name() == "PowBackward0":
        node = next(iter(inputs(node)), None)
    if node is None or node.name() not in _DIFFERENCES:
        return False
    givers = inputs(node)
    return len(givers) == 1 and not means.isdisjoint(_numbers_of(givers[0]))


def install(watch: Watch) -> None:
    def samples(distribution: Any, args: Args, kwargs: Kwargs) -> None:
        watch.blind_samples.samples(distribution)

    def asked(distribution: Any, args: Args, kwargs: Kwargs) -> None:
        watch.blind_samples.asked()

    normal = torch.distributions.Normal
    observe(watch, normal, "sample", before=samples)
    observe(watch, normal, "rsample", before=asked)
    observe(watch, normal, "log_prob", before=asked)
