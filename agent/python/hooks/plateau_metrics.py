"""Metrics that ranks give to ReduceLROnPlateau, each its own.

A loss of a rank's own share of the data stops falling at another epoch than that of
another rank: the rates of replicas fall at different times, and their weights part
although their gradients are averaged, by a wrapper or by the script itself. Each rank says its metric and the rates that follow
from it; it is reported by a rank whose metric and rates both differ from the first one's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement
from _traincheck.hyper_parameters import number_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import parameters_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from traincheck_core import Core

# Name of the scalar of an optimizer.
NAME = "schedule.metrics_apart"

_SCHEDULERS = 4  # that are compared
_CALLS = 4096  # of each; some train for a number of epochs only


class _Row:
    """One scheduler."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0
        self.apart: bool | None = None


class PlateauMetrics:
    def __init__(self, core: Core, averages: Callable[[Any], bool]) -> None:
        """averages: does the script average an optimizer's gradients over all ranks?"""
        self._core = core
        self._averages = averages
        self._wrapped: list[set[int]] = []  # ids of parameters, by wrapper
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._count = 0

    def wrapped(self, wrapper: torch.nn.Module, group: Any) -> None:
        """Called when a model is, by all ranks of the world."""
        size = torch.distributed.get_world_size(group)
        if size == torch.distributed.get_world_size() and len(self._wrapped) < 16:
            self._wrapped.append({id(one) for one in parameters_in(wrapper)})

    def stepped(self, scheduler: Any, metric: Any) -> None:
        """It was given a metric, and has set its rates."""
        optimizer = getattr(scheduler, "optimizer", None)
        groups = getattr(optimizer, "param_groups", None)
        value = number_of(metric)
        if not groups or value is None or not torch.distributed.is_available():
            return
        if not torch.distributed.is_initialized():
            return
        if not self._are_replicas(groups) and not self._averages(optimizer):
            return
        row = self._rows.get(scheduler)
        if row is None:
            if self._count == _SCHEDULERS:
                return
            self._count += 1
            row = _Row(self._count)
            self._rows.set(scheduler, row)
        row.calls += 1
        if row.calls > _CALLS or row.apart:
            return
        rates = repr([number_of(group.get("lr")) for group in groups])
        key, what = f"plateau {row.number} {row.calls}", "the metrics of schedulers"
        said = run_agreement.said_first(self._core, what, key, f"{value!r} {rates}")
        if said is not None:
            other = said.split(" ", 1)
            row.apart = other[0] != repr(value) and other[1] != rates

    def _are_replicas(self, groups: list[dict[str, Any]]) -> bool:
        held = {id(one) for group in groups for one in group["params"]}
        return any(not held.isdisjoint(wrapped) for wrapped in self._wrapped)

    def is_apart(self, scheduler: Any) -> bool | None:
        """Do the rates of ranks differ since they were given different metrics? None: it
        is given none, or its optimizer holds no replicas."""
        row = self._rows.get(scheduler)
        return None if row is None else row.apart
