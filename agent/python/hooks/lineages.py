"""Where the weights that are trained begin anew: other parameters are stepped for the
first time, or those that were stepped before have been overwritten since (a load, an
initialisation, a projection). What a model has seen before that does not count for it.

One parameter of each optimizer is looked at, the first that is trained. A write through
`.data` leaves no trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.holds import first_trained
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    import torch

_MOST = 64  # parameters; those that were stepped first are forgotten


class Lineages:
    def __init__(self) -> None:
        self.count = 0  # how often weights began anew
        # By id: the parameter, and how often it was written to when its last step ended.
        self._known: dict[int, tuple[TensorMark, int]] = {}

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        """Called as its step begins."""
        first = first_trained(optimizer)
        if first is None or not has_mark(first):
            return
        known = self._known.get(id(first))
        if known is None or not known[0].is_of(first) or known[1] != first._version:
            self.count += 1

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        first = first_trained(optimizer)
        if first is None or not has_mark(first):
            return
        known = self._known.get(id(first))
        if known is None or not known[0].is_of(first):
            while len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            known = (TensorMark(first), 0)
        self._known[id(first)] = (known[0], first._version)
