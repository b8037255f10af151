"""DistributedSamplers whose ranks do not shuffle alike.

Each rank takes its share of one shuffled order. Ranks with seeds of their own take
shares of different orders: samples come twice, and others not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data.distributed import DistributedSampler

from _traincheck import run_agreement
from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from torch.utils.data import DataLoader
    from traincheck_core import Core

# Name of the scalar of a loader.
NAME = "loader.orders_differ"

_SAMPLERS = 16  # that are compared


class SamplerOrders:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._compared: WeakIdentityMap[DistributedSampler, bool] = WeakIdentityMap()
        self._count = 0

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: another rank shuffles with another seed; None: the ranks do not share an
        order, it is not known, or it was said."""
        sampler = loader.sampler
        # The epoch is not compared: a rank may look at a batch before the others do.
        if type(sampler) is not DistributedSampler or not sampler.shuffle:
            return None
        if not torch.distributed.is_initialized() or self._compared.get(sampler):
            return None
        # Where fewer ranks share an order, several orders are to differ.
        world = torch.distributed.get_world_size()
        if world < 2 or sampler.num_replicas != world or self._count == _SAMPLERS:
            return None
        self._compared.set(sampler, True)
        self._count += 1
        # Ranks use their samplers in one order, or have others to compare with.
        key = f"order {self._count} of {sampler.total_size}"
        what = "the orders in which ranks shuffle"
        return run_agreement.differs(self._core, what, key, str(sampler.seed))
