"""Averaged copies of a model that are evaluated without statistics of their own.

An average of parameters alone leaves the copy's BatchNorms at mean 0 and variance 1.
In evaluation mode they normalise by these. SWA gathers them before it evaluates
(update_bn); a copy that nobody updates is no average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.models import Model

_ELEMENTS = 256

# Name of the scalar of a loader.
NAME = "loader.averages_without_statistics"


class Averages:
    def __init__(self) -> None:
        # Hash of some elements when the copy was first seen.
        self._first: WeakIdentityMap[torch.nn.Module, int] = WeakIdentityMap()
        self._found: bool | None = None  # since the last batch
        self._without: bool | None = None  # since the last step

    def follows(self, model: Model) -> None:
        """Called when it turns out to be a copy."""
        root = model.root()
        if root is not None and self._first.get(root) is None:
            self._first.set(root, _content(root))

    def evaluates(self, model: Model) -> None:
        """Called before an outermost forward that does not train."""
        root = model.root()
        if root is None or not model.shadow_of or root.training:
            return
        norms = list(_norms(root))
        if not norms:
            return
        self.follows(model)
        if _content(root) != self._first.get(root):
            without = all(map(_is_new, norms))
            self._found = bool(self._found) or without
            self._without = bool(self._without) or without

    def fetched(self) -> float | None:
        """Called for every batch. 1: what was evaluated on the one before is such a
        copy; None: no averaged copy with BatchNorms was evaluated."""
        said, self._found = self._found, None
        if said is not None:
            self._without = None
        return None if said is None else float(said)

    def optimizer_steps(self) -> float | None:
        """As above, of evaluations without a loader."""
        said, self._without = self._without, self._without and False
        return None if said is None else float(said)


def _norms(root: torch.nn.Module) -> Iterator[_BatchNorm]:
    """The BatchNorms that count batches; none where they are on a device."""
    for module in root.modules():
        if isinstance(module, _BatchNorm) and not module.training:
            counter = module.num_batches_tracked
            if counter is not None and counter.is_cpu:
                yield module


def _is_new(norm: _BatchNorm) -> bool:
    """Are its statistics those that it was made with?"""
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        return False
    return not bool(mean.any()) and bool((variance == 1).all())


def _content(root: torch.nn.Module) -> int:
    parameter = next(root.parameters(), None)
    if parameter is None or type(parameter) is not torch.nn.Parameter:
        return 0
    few = parameter.detach().reshape(-1)[:_ELEMENTS]
    return hash(tuple(few.tolist())) if few.is_cpu else 0
