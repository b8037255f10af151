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


class Averages:
    def __init__(self) -> None:
        # Hash of some elements when the copy was first evaluated.
        self._first: WeakIdentityMap[torch.nn.Module, int] = WeakIdentityMap()
        self._without: bool | None = None

    def evaluates(self, model: Model) -> None:
        """Called before an outermost forward that does not train."""
        root = model.root()
        if root is None or not model.shadow_of or root.training:
            return
        norms = list(_norms(root))
        if not norms:
            return
        content = _content(root)
        first = self._first.get(root)
        if first is None:
            self._first.set(root, content)
        elif content != first:
            without = all(map(_is_new, norms))
            self._without = bool(self._without) or without

    def optimizer_steps(self) -> float | None:
        """1: a copy was; None: no averaged copy with BatchNorms was evaluated."""
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
    """Has it seen no batch, and got statistics of nobody who has?"""
    counter, mean = norm.num_batches_tracked, norm.running_mean
    if counter is None or int(counter) != 0 or mean is None:
        return False
    return not bool(mean.any())


def _content(root: torch.nn.Module) -> int:
    parameter = next(root.parameters(), None)
    if parameter is None or type(parameter) is not torch.nn.Parameter:
        return 0
    few = parameter.detach().reshape(-1)[:_ELEMENTS]
    return hash(tuple(few.tolist())) if few.is_cpu else 0
