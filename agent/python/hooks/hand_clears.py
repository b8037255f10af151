"""Gradients that the program clears itself, in place.

    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()          # or .data.zero_(), fill_(0), torch._foreach_zero_

No call of zero_grad shows it. Where one of the first backwards since an optimizer's step
begins, and no zero_grad of that optimizer came in between, a few of its gradients are
recorded as they are then: zeros were cleared. (Gradients that are None, states.py.) The
backward may be of another optimizer, and this one's gradients may be cleared behind it.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from traincheck_core import Core

    from _traincheck.holds import Holds
    from _traincheck.states import States

    _Left = WeakIdentityMap[torch.optim.Optimizer, tuple[int, int]]

_BACKWARDS = 8  # behind a step
_OPTIMIZERS = 16  # at one backward: some have one for each parameter
_LOOKED_AT = 16  # gradients of an optimizer
_RECORDED = 3  # of these, the smallest ones


class HandClears:
    def __init__(self, core: Core, holds: Holds, states: States) -> None:
        self._core = core
        self._holds = holds
        self._states = states
        # Of those that have stepped: in which thread, and backwards to come at whose
        # begin is looked.
        self._left: _Left = WeakIdentityMap()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._left.set(optimizer, (get_ident(), _BACKWARDS))

    def cleared(self, optimizer: torch.optim.Optimizer) -> None:
        """Called by its zero_grad."""
        self._left.discard(optimizer)

    def backward_begins(self) -> None:
        """Called where states are recorded, and before gradients are added up."""
        point = self._core.POINT_GRAD_CLEAR
        for optimizer, (thread, left) in self._left.items()[:_OPTIMIZERS]:
            if thread != get_ident():
                continue  # a claim would take it away from that thread
            held = self._holds.ensure(optimizer)
            if held.complete and held.claim():
                self._states.gradients(point, *_smallest(*held.state(optimizer)))
                if left > 1:
                    self._left.set(optimizer, (thread, left - 1))
                else:
                    self._left.discard(optimizer)


def _smallest(
    variables: list[int], tensors: list[torch.Tensor]
) -> tuple[list[int], list[torch.Tensor]]:
    """Of those with a gradient."""
    found = []
    # Reading an attribute must call no override of the user's.
    with torch._C.DisableTorchFunctionSubclass():
        for variable, tensor in zip(variables, tensors):
            if tensor.is_leaf and tensor.grad is not None:
                found.append((int(tensor.grad.numel()), variable, tensor))
                if len(found) == _LOOKED_AT:
                    break
    found = sorted(found, key=lambda one: one[0])[:_RECORDED]
    return [one[1] for one in found], [one[2] for one in found]
