"""Evaluations in which samples count twice, because ranks get equally many.

A DistributedSampler repeats the first samples until each rank has as many as the others.
A training does not mind; a metric over all ranks counts them twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data.distributed import DistributedSampler

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

# Name of the scalar of a loader.
NAME = "loader.repeats_rows"


class RepeatedRows:
    def __init__(self) -> None:
        # Number of the loader that is read now, and: does its sampler repeat samples?
        self._now: tuple[int, bool] | None = None

    def pass_begins(self, loader: DataLoader, number: int) -> None:
        self._now = None
        sampler = loader.sampler
        if type(sampler) is DistributedSampler and sampler.num_replicas > 1:
            repeats = sampler.total_size > len(sampler.dataset)
            self._now = (number, repeats)

    def second_batch(self, number: int, trained: bool) -> float | None:
        """Called in each pass; trained: with its first batch. 1: samples are repeated
        in an evaluation; None: the loader has no such sampler, or trains."""
        if self._now is None or self._now[0] != number:
            return None
        if trained or torch.is_grad_enabled():
            return None
        return float(self._now[1])
