"""Is a step made with nothing that is new?

Between two steps of an optimizer a backward runs, or somebody gives it gradients
otherwise: torch.func.grad, an outer optimizer that is given a difference of weights.
Then the gradients are other tensors than before, or have been written to. Only their
identity is looked at, which costs nothing on a device.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    import torch

    # Weakly: another tensor may come to lie where it lay. How often it was written to.
    Gradient = tuple[weakref.ref[torch.Tensor], int]

_LOOKED_AT = 8  # parameters of an optimizer


class _Optimizer:
    def __init__(self, backwards: int) -> None:
        self.backwards = backwards  # begun by the end of its last step
        # Of its gradients then; none when it was made.
        self.gradients: list[Gradient] = []
        self.is_old = False  # when its step began
        self.said: bool | None = None


class OldGradients:
    """Called while one thread trains; see signs.py."""

    def __init__(self) -> None:
        self._backwards = 0
        self._all: WeakIdentityMap[Any, _Optimizer] = WeakIdentityMap()

    def backward_begins(self) -> None:
        self._backwards += 1

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._all.set(optimizer, _Optimizer(self._backwards))

    def begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Its step does."""
        known = self._all.get(optimizer)
        if known is not None:
            known.is_old = _are(known.gradients, optimizer)

    def ended(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Was the step made with old gradients, or with none? None: not known, or as
        at the last one. A closure may have called backward in it."""
        known = self._all.get(optimizer)
        if known is None:
            self.made(optimizer)
            return None
        is_old = known.is_old and self._backwards == known.backwards
        known.backwards = self._backwards
        known.gradients = [
            (weakref.ref(gradient), _writes(gradient))
            for gradient in _gradients(optimizer)
        ]
        said, known.said = known.said, is_old
        return None if is_old == said else is_old


def _are(former: list[Gradient], optimizer: torch.optim.Optimizer) -> bool:
    """Has it these gradients, as they were, or none?"""
    now = _gradients(optimizer)
    return not now or (
        len(now) == len(former)
        and all(
            known() is gradient and writes == _writes(gradient)
            for gradient, (known, writes) in zip(now, former)
        )
    )


def _writes(gradient: torch.Tensor) -> int:
    return 0 if gradient.is_inference() else int(gradient._version)


def _gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The first ones."""
    found: list[torch.Tensor] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                found.append(parameter.grad)
                if len(found) == _LOOKED_AT:
                    return found
    return found
