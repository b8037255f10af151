"""Optimizers that a GradScaler steps, and the program once more.

GradScaler.step calls the optimizer's step itself. Who calls optimizer.step() after it, or
instead of it, applies the gradients of one backward twice, the second time without a
look at whether they are finite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    import torch

# Name of the scalar.
NAME = "opt.stepped_besides_scaler"


class ScalerSteps:
    """Called while one thread trains; see signs.py."""

    def __init__(self) -> None:
        self._backwards = 0
        self._inside: int | None = None  # id of the optimizer that a scaler steps
        # Backwards when a scaler stepped it last, and nothing has cleared it since.
        self._stepped: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()
        self._used = False  # has any been stepped by a scaler?

    def backward_begins(self) -> None:
        self._backwards += 1

    def scaler_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """A scaler decides whether to step it."""
        self._used = True
        self._inside = id(optimizer)

    def scaler_ended(self, optimizer: torch.optim.Optimizer) -> None:
        self._inside = None
        self._stepped.set(optimizer, self._backwards)

    def replayed(self) -> None:
        """A CUDA graph was: what ran in it is not known."""
        self._backwards += 1

    def steps(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Called as its step begins: has a scaler stepped it since the last backward?
        None: no scaler has ever."""
        if not self._used:
            return None
        stepped = self._stepped.get(optimizer)
        if self._inside == id(optimizer):
            return False
        if stepped is None:
            return None
        return stepped == self._backwards
