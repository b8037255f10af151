"""Samples through which no gradient reaches what they were drawn from.

Normal.sample() has no gradient, rsample() has. A sample without one is right where the
likelihood of what was drawn is trained (log_prob, gaussian_nll_loss, the same by hand):
then that has the gradient. Looked at is what a model draws in its training forward, and
what is drawn elsewhere (between the calls of an encoder and a decoder, say) if a layer
is given it and the same loss holds the mean back, as a divergence does: actions that
are tried out, and outputs that are the next inputs, are drawn elsewhere, too.
torch.normal() stands in the graph of the loss, and hands its mean a gradient of zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs, kept, walk
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Args, Core, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.step_lines import StepLines
    from _traincheck.watch import Watch

# Name of the scalar of an optimizer.
NAME = "opt.samples_without_gradient"

_LOOKS = 8  # at losses
_LOSSES = 16  # that are searched for what torch.normal drew
_MOST_NODES = 256
_MOST_MEANS = 16  # of a step
_DIFFERENCES = ("SubBackward0", "RsubBackward0")
# torch.normal of a mean that is a tensor, with a deviation that is one or is not.
_NORMALS = ("NormalBackward1", "NormalBackward3")
# What a layer keeps of what it is given.
_LAYERS = {
    "AddmmBackward0": "mat1",
    "BmmBackward0": "self",
    "ConvolutionBackward0": "input",
    "MmBackward0": "self",
    "NativeLayerNormBackward0": "input",
}


class BlindSamples:
    def __init__(self, core: Core, lines: StepLines, awake: Awake) -> None:
        self._core = core
        self._lines = lines
        self._awake = awake
        self._in_forward = False
        self._sampled = False  # with a mean that needs a gradient
        self._asked = False  # was a sample with a gradient, or a likelihood, ever?
        # Numbers of the nodes that gave the means, since the last step. The nodes would
        # keep their graphs.
        self._means: set[int] = set()
        # Storages of what was drawn outside of forwards since then, and their means.
        self._elsewhere: dict[int, set[int]] = {}
        self._looks = 0
        self._losses = 0  # that were looked at before anything was drawn

    def forward_begins(self) -> None:
        """Called at outermost ones that train."""
        self._in_forward = True

    def forward_ended(self) -> None:
        self._in_forward = False

    def samples(self, distribution: Any, drawn: Any) -> None:
        if not torch.is_grad_enabled() or self._asked:
            return
        mean = getattr(distribution, "loc", None)
        if not isinstance(mean, torch.Tensor):
            return
        if not self._in_forward:
            self._samples_elsewhere(mean, drawn)
            return
        self._sampled = self._sampled or mean.requires_grad
        if mean.requires_grad:
            self._lines.here(NAME)
        if mean.grad_fn is not None and len(self._means) < _MOST_MEANS:
            self._means |= _numbers_of(mean.grad_fn)
        self._awake.add(NAME)

    def _samples_elsewhere(self, mean: torch.Tensor, drawn: Any) -> None:
        if mean.grad_fn is None or type(drawn) is not torch.Tensor:
            return
        if len(self._elsewhere) < _MOST_MEANS and self._looks < _LOOKS:
            numbers = _numbers_of(mean.grad_fn)
            self._elsewhere[self._core.storage_key(drawn)] = numbers
            self._means |= numbers
            self._lines.here(NAME)

    def asked(self) -> None:
        self._asked = True
        self._awake.add(NAME)

    def awaits_loss(self) -> bool:
        few = bool(self._means) or self._losses < _LOSSES
        return few and not self._asked and self._looks < _LOOKS

    def backward_begins(self, roots: list[Node]) -> None:
        """REQUIRES: awaits_loss(). Looks for a likelihood without log_prob."""
        nodes = list(walk(roots, _MOST_NODES))
        normals = [node for node in nodes if node.name() in _NORMALS]
        drawn = [_numbers_of(node.next_functions[0][0]) for node in normals]
        self._means = self._means.union(*drawn)
        if not self._means:
            self._losses += 1
            return
        self._looks += 1
        self._asked = any(_is_likelihood(node, self._means) for node in nodes)
        if self._asked or (not normals and not self._elsewhere):
            return
        means = self._given_to_layers(nodes).union(*drawn)
        if any(_holds_back(node, means) for node in nodes):
            self._sampled = True
            self._awake.add(NAME)

    def _given_to_layers(self, nodes: list[Node]) -> set[int]:
        """The means of what was drawn elsewhere, as far as a layer was given it."""
        means: set[int] = set()
        for node in nodes if self._elsewhere else ():
            given = kept(node, _LAYERS.get(node.name(), ""))
            if type(given) is torch.Tensor:
                means |= self._elsewhere.get(self._core.storage_key(given), set())
        return means

    def optimizer_steps(self) -> float | None:
        """1: samples had no gradient, and nothing else has one; None: none were drawn
        of a trained distribution."""
        self._means.clear()
        self._elsewhere.clear()
        if not self._sampled:
            return 0.0 if self._asked else None
        return float(not self._asked)


def _numbers_of(node: Node | None) -> set[int]:
    """Of the node and, where it only repeats what another one gave, of that one."""
    if node is None:
        return set()
    nodes: list[Any]
    nodes = [node, *inputs(node)] if node.name() == "ExpandBackward0" else [node]
    asked: list[Any] = [getattr(one, "_sequence_nr", None) for one in nodes]
    return {ask() for ask in asked if ask is not None}


def _is_likelihood(node: Node, means: set[int]) -> bool:
    """Does it weigh the difference of a mean and what is given, or its square, by what
    is trained, or divide its square? (A distance to a prior is divided first.)"""
    following = [giver for giver, _ in node.next_functions]
    if len(following) != 2:
        return False
    first, second = map(_without_sign, following)
    if node.name() in _DIFFERENCES and first is not None and second is not None:
        return _NORMALS.count(first.name()) != _NORMALS.count(second.name()) and (
            _is_difference(node, means)
        )
    if node.name() == "DivBackward0":
        squares = first is not None and first.name() == "PowBackward0"
        trained = second is not None
        return (squares or trained) and _is_difference(first, means)
    if node.name() == "MulBackward0" and first is not None and second is not None:
        return _is_difference(first, means) or _is_difference(second, means)
    return False


def _without_sign(node: Node | None) -> Node | None:
    if node is not None and node.name() == "NegBackward0":
        return next(iter(inputs(node)), None)
    return node


def _is_difference(node: Node | None, means: set[int]) -> bool:
    if node is not None and node.name() == "PowBackward0":
        node = next(iter(inputs(node)), None)
    if node is None or node.name() not in _DIFFERENCES:
        return False
    # What torch.normal drew has a node.
    givers = [one for one in inputs(node) if one.name() not in _NORMALS]
    return len(givers) == 1 and not means.isdisjoint(_numbers_of(givers[0]))


def _holds_back(node: Node, means: set[int]) -> bool:
    """Is it the square of a mean, or its distance to a prior that is divided by the
    prior's deviation?"""
    givers = [giver for giver, _ in node.next_functions]
    if node.name() == "DivBackward0" and givers[0] is not None:
        if givers[0].name() in _DIFFERENCES:
            return any(not means.isdisjoint(_numbers_of(g)) for g in inputs(givers[0]))
    is_square = node.name() == "PowBackward0" and kept(node, "exponent") == 2
    if node.name() == "MulBackward0":
        is_square = givers[0] is givers[-1]
    return is_square and not means.isdisjoint(_numbers_of(givers[0]))


def install(watch: Watch) -> None:
    def sampled(distribution: Any, args: Args, result: Any) -> None:
        watch.blind_samples.samples(distribution, result)

    def asked(distribution: Any, args: Args, kwargs: Kwargs) -> None:
        watch.blind_samples.asked()

    normal = torch.distributions.Normal
    observe(watch, normal, "sample", after=sampled)
    observe(watch, normal, "rsample", before=asked)
    observe(watch, normal, "log_prob", before=asked)
