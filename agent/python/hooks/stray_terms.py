"""Terms of a loss that reach none of the parameters which are stepped with them.

What a discriminator says of a detached result has a graph, too: it ends in the
discriminator. The generator steps without that term, and the discriminator's own loss
begins by clearing what the term left there.
"""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING

from _traincheck.graph_nodes import inputs, shape, walk
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in
from _traincheck.places import place

if TYPE_CHECKING:
    import torch
    from torch.autograd.graph import Node
    from traincheck_core import Core

    from _traincheck.places import Place

# Name of the scalar.
NAME = "loss.stray_term"

LEAF = "torch::autograd::AccumulateGrad"  # name of the node of a leaf

_FIRST = 4  # backwards of a place in the code that are looked at
_MAX_PLACES = 64
_MAX_NODES = 4096  # of a term; a larger one reaches what is not known
_MAX_TERMS = 8
_HABIT = 2  # backwards in a row
_SUMS = ("AddBackward0", "SubBackward0")
_SCALED = (*_SUMS, "DivBackward0", "MulBackward0", "NegBackward0")


class _Backward:
    """From one backward of a place in the code to the next one."""

    def __init__(self, terms: list[set[int]]) -> None:
        self.terms = terms  # of each: the optimizers that hold what it reaches
        self.cleared: set[int] = set()
        self.used: set[int] = set()  # stepped before they were cleared
        self.stepped: set[int] = set()  # stepped behind that

    def reached(self) -> frozenset[frozenset[int]]:
        return frozenset(frozenset(term) for term in self.terms)

    def has_stray_term(self) -> bool | None:
        """None: not known, or nothing was stepped with it."""
        if not any(term & self.used for term in self.terms):
            return None
        others = [term for term in self.terms if not term & self.used]
        if not others:
            return False
        elsewhere = self.cleared & self.stepped
        return True if any(term <= elsewhere for term in others) else None


class StrayTerms:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._looked: collections.Counter[Place] = collections.Counter()
        self._open: dict[Place, _Backward] = {}
        self._habit: collections.Counter[Place] = collections.Counter()
        # What terms reach in losses all of whose terms train something: who steps
        # several networks in turn with one loss computes all of it each time.
        self._served: set[frozenset[frozenset[int]]] = set()
        # Optimizers that stepped with losses whose terms reach these.
        self._used: dict[frozenset[frozenset[int]], set[int]] = {}
        # An id may be that of another optimizer once its own is gone.
        self._numbers: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()
        self._count = 0
        # Optimizers with terms of their own, in the losses of a place, and now.
        self._meant: dict[Place, set[int]] = {}
        self._meant_now: set[int] = set()

    def is_meant(self, optimizer: torch.optim.Optimizer) -> bool:
        """Has the loss of the backward that runs a term for it alone?"""
        return self._numbers.get(optimizer) in self._meant_now

    def _number(self, optimizer: torch.optim.Optimizer) -> int:
        number = self._numbers.get(optimizer)
        if number is None:
            self._count += 1
            number = self._count
            self._numbers.set(optimizer, number)
        return number

    def backward_begins(
        self, roots: list[Node], optimizers: list[torch.optim.Optimizer]
    ) -> float | None:
        """1: so it was at the last two backwards of this place; None: not known."""
        self._meant_now = set()
        if len(optimizers) < 2:
            return None
        here = place(self._core)
        self._meant_now = self._meant.get(here, set())
        if here not in self._looked and len(self._looked) == _MAX_PLACES:
            return None
        before = self._open.pop(here, None)
        if self._looked[here] < _FIRST:
            self._looked[here] += 1
            terms = terms_of(roots)
            if len(terms) > 1:
                numbers = {self._number(one): one for one in optimizers}
                held = _holders(terms, numbers)
                self._open[here] = _Backward(held)
                self._meant_now = {next(iter(one)) for one in held if len(one) == 1}
                self._meant[here] = self._meant_now
        stray = None if before is None else self._has_stray(before)
        self._habit[here] = self._habit[here] + 1 if stray else 0
        if stray is None:
            return None
        return float(stray) if not stray or self._habit[here] >= _HABIT else None

    def _has_stray(self, before: _Backward) -> bool | None:
        reached = before.reached()
        stray = before.has_stray_term()
        if stray is False:
            self._served.add(reached)
        used = self._used.setdefault(reached, set())
        for one in (before, *self._open.values()):
            if one.reached() == reached:
                used |= one.used
        # Steps by blocks of the parameters take turns with one objective.
        turns = all(term & used for term in before.terms)
        return False if stray and (turns or reached in self._served) else stray

    def clears(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before its gradients are cleared, outside of its step."""
        for backward in list(self._open.values()):
            backward.cleared.add(self._number(optimizer))

    def module_clears(
        self, module: torch.nn.Module, optimizers: list[torch.optim.Optimizer]
    ) -> None:
        if self._open:
            cleared = set(map(id, parameters_in(module)))
            for optimizer in optimizers:
                if not cleared.isdisjoint(map(id, parameters_of(optimizer))):
                    self.clears(optimizer)

    def replayed(self) -> None:
        """Backwards or steps ran in a graph: which were used is not known."""
        self._open.clear()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        for backward in list(self._open.values()):
            number = self._number(optimizer)
            is_later = number in backward.cleared
            (backward.stepped if is_later else backward.used).add(number)


def terms_of(roots: list[Node]) -> list[Node]:
    """What the losses, which are numbers, add up; empty: too much."""
    terms, todo = [], list(roots)
    while todo:
        node = todo.pop()
        given = inputs(node)
        several = len(given) == 2 and node.name() in _SUMS
        scaled = len(given) == 1 and node.name() in _SCALED
        sizes = shape(node)
        is_number = sizes is not None and math.prod(sizes) == 1
        if is_number and (several or scaled):
            todo.extend(given)
        else:
            terms.append(node)
        if len(terms) > _MAX_TERMS:
            return []
    return terms


def _holders(
    terms: list[Node], optimizers: dict[int, torch.optim.Optimizer]
) -> list[set[int]]:
    """Numbers of the optimizers, of each term; terms that reach nothing that is held, or
    too much, are left out."""
    holder = {
        id(parameter): number
        for number, optimizer in optimizers.items()
        for parameter in parameters_of(optimizer)
    }
    found = []
    for term in terms:
        nodes = list(walk([term], _MAX_NODES))
        leaves = [
            id(getattr(node, "variable", None)) for node in nodes if node.name() == LEAF
        ]
        held = {holder[leaf] for leaf in leaves if leaf in holder}
        if held and len(nodes) < _MAX_NODES:
            found.append(held)
    return found
