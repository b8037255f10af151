"""DistributedSamplers whose ranks do not shuffle alike.

Each rank takes its share of one shuffled order. Ranks with seeds of their own, or of
which some were told the epoch and others not, take shares of different orders: samples
come twice, and others not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data.distributed import DistributedSampler

from _traincheck import run_agreement

if TYPE_CHECKING:
    from torch.utils.data import DataLoader
    from traincheck_core import Core

# Name of the scalar of a loader.
NAME = "loader.orders_differ"

_PASSES = 16  # that are compared


class SamplerOrders:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._count = 0

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: another rank shuffles in another order; None: the ranks do not share one,
        or it is not known."""
        sampler = loader.sampler
        if not isinstance(sampler, DistributedSampler) or not sampler.shuffle:
            return None
        if self._count == _PASSES or not torch.distributed.is_initialized():
            return None
        # Where fewer ranks share an order, several orders are to differ.
        world = torch.distributed.get_world_size()
        if world < 2 or sampler.num_replicas != world:
            return None
        self._count += 1
        # Ranks begin their passes in one order, or have others to compare with.
        key = f"order {self._count} of {sampler.total_size}"
        try:
            order = f"{sampler.seed} {sampler.epoch}"
            return float(not run_agreement.is_first_said(key, order))
        except RuntimeError as error:  # the store is gone
            self._core.log_once(
                "orders of ranks",
                f"the orders in which ranks shuffle are not compared: {error}",
            )
            return None
