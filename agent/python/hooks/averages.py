"""Averaged copies of a model that are evaluated without statistics of their own.

An average of parameters alone leaves the copy's BatchNorms at mean 0 and variance 1.
In evaluation mode they normalise by these. SWA gathers them before it evaluates
(update_bn); a copy that nobody updates is no average.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from _traincheck.device_values import first_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in, parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.models import Model

_ELEMENTS = 256

# Name of the scalar of a loader.
NAME = "loader.averages_without_statistics"


class Averages:
    def __init__(self, values: DeviceValues, awake: Awake) -> None:
        self._values = values
        self._awake = awake
        # Hash of some elements when the copy was first seen.
        self._first: WeakIdentityMap[torch.nn.Module, int] = WeakIdentityMap()
        self._found: bool | None = None  # since the last batch
        self._without: bool | None = None  # since the last step

    def follows(self, model: Model) -> None:
        """Called when it turns out to be a copy."""
        root = model.root()
        if root is None or self._first.get(root) is not None:
            return
        few = self._few(root)
        if few is None:
            self._first.set(root, 0)
            return
        reference = weakref.ref(root)

        def take(values: list[torch.Tensor]) -> None:
            copy = reference()
            # Asked for again before it came, it is not the first any more.
            if copy is not None and self._first.get(copy) is None:
                self._first.set(copy, _hash(values[0]))

        self._values.read([few], take)

    def evaluates(self, model: Model) -> None:
        """Called before an outermost forward that does not train."""
        root = model.root()
        if root is None or not model.shadow_of:
            return
        norms = list(self._norms(root))
        few = self._few(root)
        if not norms or few is None:
            return
        self.follows(model)
        reference = weakref.ref(root)

        def take(values: list[torch.Tensor]) -> None:
            copy = reference()
            first = None if copy is None else self._first.get(copy)
            if first is not None and _hash(values[0]) != first:
                self._say(_are_new(values[1:]))

        statistics = [s for norm in norms for s in _statistics(norm)]
        self._values.read([few, *statistics], take)

    def _say(self, without: bool) -> None:
        self._found = bool(self._found) or without
        self._without = bool(self._without) or without
        self._awake.add("opt.averages_without_statistics")

    def fetched(self) -> float | None:
        """Called for every batch. 1: what was evaluated on the one before is such a
        copy; None: no averaged copy with BatchNorms was evaluated."""
        self._values.poll()
        said, self._found = self._found, None
        if said is not None:
            self._without = None
        return None if said is None else float(said)

    def optimizer_steps(self) -> float | None:
        """As above, of evaluations without a loader."""
        said, self._without = self._without, self._without and False
        return None if said is None else float(said)

    def _norms(self, root: torch.nn.Module) -> Iterator[_BatchNorm]:
        """The BatchNorms that count batches."""
        for module in modules_in(root):
            if isinstance(module, _BatchNorm) and not module.training:
                kept = _statistics(module)
                counter = module.num_batches_tracked
                if counter is not None and kept and all(map(self._values.reads, kept)):
                    yield module

    def _few(self, root: torch.nn.Module) -> torch.Tensor | None:
        """None: they cannot be read."""
        parameter = next(parameters_in(root), None)
        if type(parameter) is not torch.nn.Parameter:
            return None
        if not self._values.reads(parameter):
            return None
        return first_of(parameter, _ELEMENTS)


def _statistics(norm: _BatchNorm) -> list[torch.Tensor]:
    both = (norm.running_mean, norm.running_var)
    return [tensor.detach() for tensor in both if tensor is not None]


def _are_new(statistics: list[torch.Tensor]) -> bool:
    """Are means and variances those that they are made with?"""
    means, variances = statistics[::2], statistics[1::2]
    moved = any(bool(mean.any()) for mean in means)
    return not moved and all(bool((one == 1).all()) for one in variances)


def _hash(few: torch.Tensor) -> int:
    return hash(tuple(few.tolist()))
