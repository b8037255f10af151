"""Is a step made with nothing that is new?

Between two steps of an optimizer a backward runs, or somebody gives it gradients
otherwise: torch.func.grad, an outer optimizer that is given a difference of weights.
Then the gradients are other tensors than before, or have been written to. Only their
identity is looked at, and how often torch has written to them, which costs nothing on a
device. What is written through .data does not show (see hand_clears.py); where no
backward has run at all, all gradients are written by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from typing import Any

    # How often it was written to; None: it cannot be told from others.
    Gradient = tuple[TensorMark, int] | None

# Name of the scalar: an optimizer has other gradients than at its last step.
REPLACED = "grads_replaced"
_LOOKED_AT = 3  # parameters of an optimizer; each takes some microseconds


class _Optimizer:
    def __init__(self, backwards: int) -> None:
        self.backwards = backwards  # begun by the end of its last step
        self.steps = 0
        # Of its gradients then; none when it was made.
        self.gradients: list[Gradient] = []
        self.is_old = False  # when its step began
        self.is_cleared = False  # since its last step
        # In place, behind it and before a backward: p.grad.mul_(0).
        self.is_written: bool | None = None  # None: no backward has begun
        self.was_replaced = False  # what it steps with, ever?
        self.said: bool | None = None


class OldGradients:
    """Called while one thread trains; see signs.py."""

    def __init__(self) -> None:
        self._backwards = 0
        self._adds_in_place = True  # has every backward so far?
        self._all: WeakIdentityMap[Any, _Optimizer] = WeakIdentityMap()

    def backward_begins(self, makes_graph: bool) -> None:
        """makes_graph: of the gradients, which are then added up in new tensors."""
        self._backwards += 1
        self._adds_in_place = self._adds_in_place and not makes_graph
        for optimizer, known in self._all.items():
            if known.is_written is None and known.steps > 0:
                known.is_written = not known.is_cleared and _were_written(
                    known.gradients, _gradients(optimizer)
                )

    def replayed(self, backwards: int) -> None:
        """So many ran in a graph, into tensors that are not written to as torch sees
        it."""
        self._backwards += backwards

    def clears(self, optimizer: torch.optim.Optimizer) -> None:
        known = self._all.get(optimizer)
        if known is not None:
            known.is_cleared = True

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._all.set(optimizer, _Optimizer(self._backwards))

    def needs_none(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Does it, a class of the program's own, go by other means than gradients
        (Jacobians, evolution)? None: it is torch's."""
        if is_of_torch(optimizer):
            return None
        return self._backwards == 0 and not _gradients(optimizer)

    def replaced_at_once(self) -> list[torch.optim.Optimizer]:
        """Whose gradients were replaced before their second step. Called when a backward
        has ended: what is said as a step begins is known to the ones after it."""
        young = [o for o in self._all.keys() if self._is_young(o)]
        return [optimizer for optimizer in young if self.are_replaced(optimizer)]

    def _is_young(self, optimizer: torch.optim.Optimizer) -> bool:
        known = self._all.get(optimizer)
        return known is not None and known.steps == 1 and not known.was_replaced

    def are_replaced(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """As its step begins: has it other tensors than at its last one, although nobody
        cleared them? A backward adds to those that are there. None: it never had."""
        known = self._all.get(optimizer)
        if known is None:
            return None
        found = _gradients(optimizer)
        now = [] if known.is_cleared else found
        dense = all(gradient.layout == torch.strided for gradient in now)
        comparable = dense and self._adds_in_place and len(now) == len(known.gradients)
        others = bool(now) and not any(map(_is_of, now, known.gradients))
        others = others or bool(known.is_written)
        # Where there are none, somebody has set them to None: nothing was summed.
        replaced = (comparable and others) or not (found or known.is_cleared)
        known.was_replaced = known.was_replaced or replaced
        return replaced if known.was_replaced else None

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Its step does."""
        known = self._all.get(optimizer)
        if known is not None:
            unused = self._backwards == known.backwards
            by_hand = self._backwards == 0 and bool(_gradients(optimizer))
            is_old = unused and not by_hand and _are(known.gradients, optimizer)
            known.is_old = is_old and not self.needs_none(optimizer)

    def ended(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Was the step made with old gradients, or with none? None: not known, or as
        at the last one. A closure may have called backward in it."""
        known = self._all.get(optimizer)
        if known is None:
            self.made(optimizer)
            return None
        is_old = known.is_old and self._backwards == known.backwards
        known.backwards = self._backwards
        known.steps += 1
        known.is_cleared, known.is_written = False, None
        known.gradients = [_mark(gradient) for gradient in _gradients(optimizer)]
        said, known.said = known.said, is_old
        return None if is_old == said else is_old


def is_of_torch(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__.startswith("torch.")


def _are(former: list[Gradient], optimizer: torch.optim.Optimizer) -> bool:
    """Has it these gradients, as they were, or none?"""
    now = _gradients(optimizer)
    return not now or (len(now) == len(former) and all(map(_is_still, now, former)))


def _is_still(gradient: torch.Tensor, known: Gradient) -> bool:
    return (
        known is not None and known[0].is_of(gradient) and known[1] == _writes(gradient)
    )


def _is_of(gradient: torch.Tensor, known: Gradient) -> bool:
    """True, too, if that is not known."""
    return known is None or known[0].is_of(gradient)


def _were_written(former: list[Gradient], now: list[torch.Tensor]) -> bool:
    """Are they those tensors, and have others' calls changed them?"""
    return len(now) == len(former) > 0 and all(
        mark is not None and mark[0].is_of(gradient) and mark[1] != _writes(gradient)
        for gradient, mark in zip(now, former)
    )


def _mark(gradient: torch.Tensor) -> Gradient:
    if not has_mark(gradient):
        return None
    return TensorMark(gradient), _writes(gradient)


def _writes(gradient: torch.Tensor) -> int:
    return 0 if gradient.is_inference() else int(gradient._version)


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The first ones."""
    found: list[torch.Tensor] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is not None:
                found.append(gradient)
                if len(found) == _LOOKED_AT:
                    return found
    return found
