"""What the graph of a loss says of how it was computed, read before its backward.

Each operation of the forward has left a node in the graph, so that neither
values nor calls need to be recorded: this costs nothing on a device and sees
what torch's functions do inside. Of each place in the code that calls backward the
first graphs are looked at, and one now and then later: the nodes next to the loss,
more seldom all.
"""

from __future__ import annotations

import cmath
import collections
import math
from typing import TYPE_CHECKING

import torch

from _traincheck import attention_graph
from _traincheck import balanced_draws
from _traincheck import broadcasts
from _traincheck import class_means
from _traincheck import crossed_products
from _traincheck import divergences
from _traincheck import held_out_rows
from _traincheck import hinges
from _traincheck import label_graph
from _traincheck import layer_graph
from _traincheck import output_graph
from _traincheck import overlap_losses
from _traincheck import padded_means
from _traincheck import policy_graph
from _traincheck import repeated_quotients
from _traincheck import rounded_positions
from _traincheck import token_graph
from _traincheck.accumulation import Accumulation
from _traincheck.class_shares import ClassShares
from _traincheck.findings import Findings
from _traincheck.graph_copy import GraphCopy
from _traincheck.graph_nodes import (
    NLL,
    dimension,
    inputs,
    integer,
    keeps_none,
    saved,
    saved_dtype,
    shape,
    walk,
)
from _traincheck.loss_lines import causes_of
from _traincheck.masked_choices import MaskedChoices
from _traincheck.places import place
from _traincheck.share_axes import ShareAxes
from _traincheck.value_graph import givers_of, origins_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.autograd.graph import Node
    from traincheck_core import Args, Core, Kwargs

    from _traincheck.device_values import DeviceValues
    from _traincheck.loss_lines import Cause, LossLines
    from _traincheck.places import Place
    from _traincheck.row_orders import RowOrders

_MAX_NODES = 256
_FIRST = 8  # backwards of a place in the code that are looked at
_EVERY = 64  # afterwards one of so many
_FIRST_WHOLE = 2  # backwards whose whole graph is looked at
_EVERY_WHOLE = 256
_MAX_SHARES = 1 << 20  # elements of a gradient that are read
_MAX_PLACES = 256  # what calls backward from more is taken for one

_SOFTMAX = "SoftmaxBackward0"
_SIGMOID = "SigmoidBackward0"
_LOG_SOFTMAX = "LogSoftmaxBackward0"
_OF_LOGITS = "BinaryCrossEntropyWithLogitsBackward0"
_LAYERS = broadcasts.LAYERS
# What gives scores or probabilities, and never their logarithms.
_NO_LOGARITHMS = _LAYERS | {_SOFTMAX, _SIGMOID, "ReluBackward0", "TanhBackward0"}

_DIFFERENCE = broadcasts.DIFFERENCE
_NO_REDUCTION, _MEAN = 0, 1  # as torch numbers reductions
_LOW_PRECISION = (torch.bfloat16, torch.float16)

# Names of the scalars: mistakes, 1 where one is made and 0 where one could be.
TWICE = "loss.normalised_twice"
NO_LOGARITHMS = "loss.no_logarithms"
BROADCAST = "loss.broadcast"
ONE_SAMPLE = "loss.one_sample"
NO_GRAPH = "loss.no_graph"
OVER_SAMPLES = "loss.over_samples"
NOT_PROBABILITIES = "loss.targets_no_probabilities"
OVER_QUERIES = "loss.attends_over_queries"
ROUNDS = "loss.in_low_precision"
# Over how many targets the loss is a mean.
TARGETS = "loss.targets"


class _LossOnDevice:
    """A loss whose value has not come yet."""

    def __init__(self) -> None:
        self.is_used = False  # a step has begun with its gradients
        self.is_cleared = False  # they were cleared, and no step used them


class LossGraphs:
    def __init__(
        self,
        core: Core,
        values: DeviceValues,
        orders: RowOrders,
        lines: LossLines,
        limited_by: Callable[[str], None],
    ) -> None:
        """limited_by: see sight.py."""
        self._core = core
        self._lines = lines
        self._orders = orders
        self._values = values
        self._limited_by = limited_by
        # What was found with values of a device, by the place that calls backward:
        # said at its next one.
        self._late: dict[Place | None, list[tuple[Findings, dict[str, Cause]]]] = {}
        self._awaited: _LossOnDevice | None = None
        self._late_loss: bool | None = None  # as _not_finite, of an earlier step
        self._looked: collections.Counter[Place | None] = collections.Counter()
        self._not_finite: bool | None = None  # of a backward since the last clearing
        # Of the losses since then: exactly 0? None: one could not be read.
        self._zeros: set[bool | None] = set()
        self._learned = False  # has there been another one, ever?
        self._rest_now: set[bool | None] = set()  # the same of the last backward alone
        # Of the losses of each place.
        self._shares: dict[Place | None, ClassShares] = {}
        self.accumulation = Accumulation()
        self._updated = False  # has an optimizer stepped?
        # Did a loss since the last step have the tokens one step ahead?
        self._predicts_next = False
        self._maximizes = False  # does some optimizer climb?

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        groups = getattr(optimizer, "param_groups", ())
        climbs = (group.get("maximize") is True for group in groups)
        self._maximizes = self._maximizes or any(climbs)

    def backward_begins(self, args: Args, kwargs: Kwargs) -> None:
        """Called at every outermost one, with its arguments."""
        self._values.poll()
        here = place(self._core)
        counted = here in self._looked or len(self._looked) < _MAX_PLACES
        row = here if counted else None
        number = self._looked[row]
        self._looked[row] += 1
        # Reading an attribute must call no override of the user's.
        with torch._C.DisableTorchFunctionSubclass():
            losses = _losses(args, kwargs)
            gradients = _gradients(args, kwargs)
            self._rest_now.clear()
            for i, loss in enumerate(losses):
                self._see(loss, gradients[i] if i < len(gradients) else None)
            self.accumulation.backward_begins(here, losses)
            for found, causes in self._late.pop(row, ()):
                self._say(found, causes)
            if number < _FIRST or number % _EVERY == 0:
                whole = number < _FIRST_WHOLE or number % _EVERY_WHOLE == 0
                left_out = [policy_graph.STARTS_APART] if self._updated else []
                # Whose sign says nothing where what they are is to become more.
                if self._maximizes or any(one is not None for one in gradients):
                    left_out.append(policy_graph.LOWERS_ENTROPY)
                self._look(row, losses, whole, left_out)
            elif row in self._shares and self._shares[row].awaits_more():
                self._count_targets(self._shares[row], losses)

    def _count_targets(self, shares: ClassShares, losses: list[torch.Tensor]) -> None:
        """In the backwards between two looks."""
        found = Findings()
        if all(map(self._values.is_here, losses)):
            for node in walk(_roots(losses), _MAX_NODES):
                found.at = node
                shares.add(node, found)
        self._say(found, causes_of(found))

    def _look(
        self,
        row: Place | None,
        losses: list[torch.Tensor],
        whole: bool,
        left_out: list[str],
    ) -> None:
        roots = _roots(losses)
        found = Findings()
        shares = self._shares.setdefault(row, ClassShares())
        anew = [loss for loss in losses if _is_made_anew(loss)]
        if all(map(self._values.is_here, losses)):
            found.add(NO_GRAPH, any(map(_is_a_loss, anew)))
            found.add(held_out_rows.NAME, held_out_rows.counts(roots))
            found.join(findings(roots, whole, self._orders, shares))
            found = found.without(*left_out)
            self._say(found, causes_of(found))
            return
        most = token_graph.MAX_NODES if whole else _MAX_NODES
        copy = GraphCopy(roots, most, self._values)
        orders = self._orders.of_this_batch()
        if copy.left_out:
            self._limited_by("device losses")
        if copy.left_out_attention:
            self._limited_by("device attention")

        tensors = copy.take_tensors()
        anew = [loss.detach() for loss in anew if self._values.is_strided(loss)]

        def take(values: list[torch.Tensor]) -> None:
            copy.fill(values)
            found.add(NO_GRAPH, any(map(_is_a_loss, values[number:])))
            found.join(findings(copy.roots, whole, orders, shares))
            # The number of targets is one of this backward alone.
            late = found.without(TARGETS, *left_out)
            causes = causes_of(late)
            late.causes = {}  # the copy is kept no longer
            self._late.setdefault(row, []).append((late, causes))

        number = len(tensors)
        self._values.read(tensors + anew, take)

    def _say(self, found: Findings, causes: dict[str, Cause]) -> None:
        shifts = token_graph.SHIFTS_TWICE
        self._predicts_next = self._predicts_next or found.get(shifts) == 0
        if self._predicts_next and found.get(shifts) == 1:
            # A further head, which goes backward by itself.
            found = found.without(shifts)
        self._lines.record(found, causes)

    def gradients_cleared(self) -> None:
        self.accumulation.cleared()
        self._zeros.clear()
        if self._awaited is not None and not self._awaited.is_used:
            self._awaited.is_cleared = True
        if self._not_finite is not None:
            self._not_finite = False

    def optimizer_steps(self) -> float | None:
        """1: with gradients of a loss that is not finite; None: not known."""
        self._updated = True
        self._predicts_next = False
        if self._awaited is not None:
            self._awaited.is_used = not self._awaited.is_cleared
        late, self._late_loss = self._late_loss, None
        known = [said for said in (self._not_finite, late) if said is not None]
        return float(any(known)) if known else None

    def losses_are_zero(self) -> float | None:
        """1: nothing is left to learn, as there was before; None: not known."""
        if False in self._zeros:
            return 0.0
        return float(self._learned) if self._zeros == {True} else None

    def rests(self) -> bool | None:
        """Is nothing left to learn from the losses of the last backward, as there was
        before, from some loss? None: not known."""
        if None in self._rest_now:
            return None
        return self._learned and self._rest_now == {True}

    def _see(self, loss: torch.Tensor, gradient: torch.Tensor | None) -> None:
        rests = self._rests(loss, gradient)
        self._zeros.add(rests)
        self._rest_now.add(rests)

    def _rests(self, loss: torch.Tensor, gradient: torch.Tensor | None) -> bool | None:
        if gradient is not None and self._is_zero(gradient):
            return True  # the user's own: nothing is to change
        plain = type(loss) is torch.Tensor and loss.numel() == 1
        if plain and self._values.is_here(loss):
            value = loss.item()
            wrong = not cmath.isfinite(value)
            self._not_finite = bool(self._not_finite) or wrong
            rests = value == 0 or hinges.all_rest(loss)
            self._learned = self._learned or not rests
            return rests
        # One at a time: a launch a backward is enough.
        if plain and self._awaited is None and self._values.reads(loss):
            self._awaited = _LossOnDevice()
            self._values.read([loss.detach()], self._take_loss)
        return None

    def _is_zero(self, gradient: torch.Tensor) -> bool:
        """False, too, of one that is large or not here."""
        if type(gradient) is not torch.Tensor or not self._values.is_here(gradient):
            return False
        is_small = 0 < gradient.numel() <= _MAX_SHARES
        return is_small and not gradient.detach().any().item()

    def _take_loss(self, values: list[torch.Tensor]) -> None:
        loss, self._awaited = self._awaited, None
        wrong = not cmath.isfinite(values[0].item())
        if loss is None or loss.is_cleared:
            return
        if loss.is_used:
            self._late_loss = bool(self._late_loss) or wrong
        else:
            self._not_finite = bool(self._not_finite) or wrong


def roots_of(args: Args, kwargs: Kwargs) -> list[Node]:
    """Nodes of what backward is called on."""
    with torch._C.DisableTorchFunctionSubclass():
        return _roots(_losses(args, kwargs))


def findings(
    roots: list[Node], whole: bool, orders: RowOrders, shares: ClassShares
) -> Findings:
    """Of the nodes next to the loss; of the whole graph, too."""
    found = Findings()
    means: list[float | None] = []
    axes, masked = ShareAxes(), MaskedChoices()
    for node in walk(roots, _MAX_NODES):
        found.at = node
        axes.look(node)
        name = node.name()
        if name in (_SOFTMAX, _LOG_SOFTMAX):
            found.add(TWICE, origins_of(node) == {_SOFTMAX})
        elif name == _OF_LOGITS:
            origins = origins_of(node)
            normalised = bool(origins) and origins <= {_SIGMOID, _SOFTMAX}
            found.add(TWICE, normalised)
            found.add(NOT_PROBABILITIES, _is_outside(node))
            output_graph.look_at_scores(node, found)
        elif name in NLL:
            origins = origins_of(node)
            found.add(NO_LOGARITHMS, bool(origins) and origins <= _NO_LOGARITHMS)
            found.add(OVER_SAMPLES, _is_over_samples(node))
            if origins == {_LOG_SOFTMAX}:
                found.add(TWICE, _is_of_sigmoids(node))
                dtype = saved_dtype(node, "self")
                found.add(ROUNDS, None if dtype is None else dtype in _LOW_PRECISION)
            means.append(_targets(node))
        elif name in _DIFFERENCE:
            found.add(divergences.KL_REVERSED, divergences.is_of_target(node))
        else:
            found.add(OVER_QUERIES, attention_graph.over_queries(node))
            found.add(padded_means.NAME, padded_means.counts(node))
            found.add(repeated_quotients.NAME, repeated_quotients.divides_again(node))
        found.add(crossed_products.NAME, crossed_products.multiplies_crosswise(node))
        found.add(rounded_positions.NAME, rounded_positions.rounds(node))
        masked.look(node)
        shares.add(node, found)
        twice = balanced_draws.balances_twice(node, orders.drawn)
        found.add(balanced_draws.NAME, twice)
        found.add(class_means.NAME, class_means.averages(node))
        found.add(overlap_losses.NAME, overlap_losses.is_of_scores(node))
        label_graph.look(node, found)
        output_graph.look(node, found)
    axes.say(OVER_SAMPLES, found)
    masked.say(found)
    found.at = None  # what follows is about no one node
    of_probabilities = divergences.is_of_probabilities(roots)
    found.add(divergences.OF_PROBABILITIES, of_probabilities)
    each, of_one = broadcasts.findings(roots, orders)
    found.add(BROADCAST, each)
    found.add(ONE_SAMPLE, of_one)
    if len(means) == 1:
        found.add(TARGETS, means[0])
    if whole:
        found.join(token_graph.findings(roots, orders))
        found.join(layer_graph.findings(roots))
        found.join(policy_graph.findings(roots))
    return found


def _is_made_anew(loss: torch.Tensor) -> bool:
    """Is it a number in a new tensor, as of torch.tensor(loss.item())?"""
    alone = loss.grad_fn is None and loss.requires_grad and loss.numel() == 1
    return alone and not isinstance(loss, torch.nn.Parameter)


def _is_a_loss(number: torch.Tensor) -> bool:
    """Is there something to learn from it? A batch of which nothing counts may be given
    a new 0."""
    plain = type(number) is torch.Tensor and number.layout == torch.strided
    return not plain or not bool(number == 0)


def _is_outside(entropy: Node) -> bool | None:
    """Are some of its targets no probabilities? None: they cannot be read, or what
    stands for missing ones may be left out of the loss."""
    targets = saved(entropy, "target")
    if targets is None or integer(entropy, "reduction") == _NO_REDUCTION:
        return None
    if not keeps_none(entropy, "weight"):
        weights = saved(entropy, "weight")
        if weights is None:
            return None
        if bool((weights == 0).any()):
            targets = torch.where(weights == 0, 0.0, targets)
    low, high = targets.aminmax()
    return bool(low < 0) or bool(high > 1)


def _is_over_samples(nll: Node) -> bool | None:
    """Does the log_softmax before it run over another dimension than the classes?

    None: there is none right before it.
    """
    givers = inputs(nll)[:1]
    if not givers or givers[0].name() != _LOG_SOFTMAX:
        return None
    sizes = shape(givers[0])
    over = None if sizes is None else dimension(givers[0], sizes)
    if sizes is None or over is None:
        return None
    return None if _are_pairs(nll, sizes) else over != min(1, len(sizes) - 1)


def _are_pairs(nll: Node, sizes: tuple[int, ...]) -> bool:
    """Does each row have a column of its own? Both are then samples, and each may be
    looked for among the others."""
    targets = saved(nll, "target")
    if len(sizes) != 2 or sizes[0] != sizes[1] or targets is None:
        return False
    return sizes[0] > 1 and len(targets.unique()) == sizes[0]


def _targets(nll: Node) -> float | None:
    """Sum of the weights by which it is divided; None: it is no mean, or reading
    it would wait for a device."""
    weight = saved(nll, "total_weight")
    if getattr(nll, "_saved_reduction", None) != _MEAN:
        return None
    return None if weight is None or weight.numel() != 1 else float(weight.item())


def _is_of_sigmoids(nll: Node) -> bool:
    """Is a cross entropy given what a sigmoid returned?"""
    return any(
        node.name() == _LOG_SOFTMAX and origins_of(node) == {_SIGMOID}
        for node in givers_of(nll)
    )


def _roots(losses: list[torch.Tensor]) -> list[Node]:
    return [loss.grad_fn for loss in losses if loss.grad_fn is not None]


def _losses(args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    given: Any = args[0] if args else kwargs.get("tensors")
    tensors = given if isinstance(given, (list, tuple)) else (given,)
    return [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]


def _gradients(args: Args, kwargs: Kwargs) -> list[torch.Tensor | None]:
    """Those that the user gives for the losses, in their order."""
    given: Any = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
    gradients = given if isinstance(given, (list, tuple)) else (given,)
    return [g if isinstance(g, torch.Tensor) else None for g in gradients]
