"""Gradients that the program clears itself, in place.

    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()          # or .data.zero_(), fill_(0), torch._foreach_zero_

No call of zero_grad shows it. Where a backward begins, the first since an optimizer's
step, and no zero_grad of that optimizer came in between, a few of its gradients are
recorded as they are then: zeros were cleared. (Gradients that are None, states.py.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from traincheck_core import Core

    from _traincheck.holds import Holds
    from _traincheck.states import States

_LOOKED_AT = 16  # gradients of an optimizer
_RECORDED = 3  # of these, the smallest ones


class HandClears:
    def __init__(self, core: Core, holds: Holds, states: States) -> None:
        self._core = core
        self._holds = holds
        self._states = states
        # Have stepped since their gradients were cleared, or looked at.
        self._open: WeakIdentityMap[torch.optim.Optimizer, bool] = WeakIdentityMap()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._open.set(optimizer, True)

    def cleared(self, optimizer: torch.optim.Optimizer) -> None:
        """Called by its zero_grad."""
        self._open.discard(optimizer)

    def backward_begins(self) -> None:
        """Called where states are recorded, and before gradients are added up."""
        point = self._core.POINT_GRAD_CLEAR
        for optimizer in self._open.keys():
            held = self._holds.ensure(optimizer)
            if held.complete and held.claim():  # else another thread trains with it
                self._open.discard(optimizer)
                self._states.gradients(point, *_smallest(*held.state(optimizer)))


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
