"""Where the weights that are trained begin anew: other parameters are stepped for the
first time, or those that were stepped before have been overwritten since (a load, an
initialisation, a projection). What a model has seen before that does not count for it.

One parameter of each optimizer is looked at, the first that is trained. A write through
`.data` leaves no trace but other values: some are kept from an evaluation to the next
step.
"""

from __future__ import annotations

import torch

from _traincheck.holds import first_trained
from _traincheck.tensor_marks import TensorMark, has_mark

_MOST = 64  # parameters; those that were stepped first are forgotten
_ELEMENTS = 8  # of one


class _Weights:
    """One parameter, and what comes with it."""

    def __init__(self, first: torch.Tensor, number: int) -> None:
        self.mark = TensorMark(first)
        self.dtype = first.dtype
        self.number = number
        # How often it was written to when its last step ended.
        self.writes = first._version
        # Elements as at an evaluation, in the memory of the host.
        self.kept: list[float] | None = None

    def values(self) -> list[float] | None:
        return _values_at(self.mark, self.dtype)

    def are_unwritten(self, first: torch.Tensor) -> bool:
        kept, self.kept = self.kept, None
        is_same = kept is None or kept == self.values()
        return is_same and self.writes == first._version


class Lineages:
    def __init__(self) -> None:
        self.count = 0  # how often weights began anew
        self.stepped_now = 0  # number of the weights that are stepped
        self._known: dict[int, _Weights] = {}  # by id of the parameter
        self._numbers = 0

    def evaluates(self) -> None:
        """Called as a pass over data without gradients begins."""
        for weights in self._known.values():
            weights.kept = weights.values()

    def steps(self, optimizer: torch.optim.Optimizer) -> None:
        """Called as its step begins."""
        first = first_trained(optimizer)
        if first is None or not has_mark(first):
            return
        known = self._known.get(id(first))
        if known is None or not known.mark.is_of(first):
            self.count += 1
            known = self._add(first)
        elif not known.are_unwritten(first):
            self.count += 1
        self.stepped_now = known.number

    def _add(self, first: torch.Tensor) -> _Weights:
        while len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._numbers += 1
        weights = self._known[id(first)] = _Weights(first, self._numbers)
        return weights

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        first = first_trained(optimizer)
        if first is None or not has_mark(first):
            return
        known = self._known.get(id(first))
        if known is not None and known.mark.is_of(first):
            known.writes = first._version


def _values_at(mark: TensorMark, dtype: torch.dtype) -> list[float] | None:
    """None: it is gone, or not in the memory of the host."""
    storage, offset = mark.place()
    if storage is None or storage.device.type != "cpu":
        return None
    count = min(_ELEMENTS, storage.nbytes() // dtype.itemsize - offset)
    if count < 1 or dtype.is_complex:
        return None
    few = torch.empty(0, dtype=dtype, device="cpu").set_(
        storage, offset, (count,), (1,)
    )
    values: list[float] = few.tolist()
    return values
