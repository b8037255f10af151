"""Evaluations of which each rank has computed its share, and that nobody has put together.

A DistributedSampler gives each rank a part of the data. What is added up over that part is
the result of one rank: who prints it, or keeps the best model by it, has looked at a share
of the data alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from torch.utils.data.distributed import DistributedSampler

from _traincheck.frame_scopes import users_frame
from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.sources import is_of_user

if TYPE_CHECKING:
    from typing import Any

    from torch.utils.data import DataLoader

    from _traincheck.awake import Awake

# Name of the scalar.
NAME = "opt.evaluates_a_share"

# What brings no results of other ranks.
_ONE_WAY = ("barrier", "broadcast", "monitored_barrier", "scatter")


class UngatheredShares:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        # Data sets that were read with gradients.
        self._trained: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._read: int | None = None  # the loader of such a pass, while it lasts
        self._evaluates = False  # was a model called in it?
        self._is_whole = False  # has one been read to its end since the last step?
        self._is_gathered = False  # has a collective brought others' results since?
        # Was nothing gathered before the training went on? None: it has not yet.
        self._found: bool | None = None
        self._steps = False  # has an optimizer stepped?

    def pass_begins(self, loader: DataLoader[Any], number: int) -> None:
        self._read = None
        data, sampler = loader.dataset, loader.sampler
        if torch.is_grad_enabled():
            self._training_goes_on()
            if is_possible_key(data):
                self._trained.set(data, True)
            return
        if not isinstance(sampler, DistributedSampler) or sampler.num_replicas < 2:
            return
        if not is_possible_key(data) or self._trained.get(data):
            return  # statistics, or features, of what is trained with
        frame = users_frame(sys._getframe())
        # A framework may put its results together by files, or later.
        if frame is not None and is_of_user(frame.f_code.co_filename):
            self._read, self._evaluates = number, False
            self._is_gathered = self._is_gathered and self._is_whole

    def evaluates(self) -> None:
        """A model is called without gradients."""
        self._evaluates = True

    def pass_ended(self, number: int) -> None:
        """All of its batches have been read."""
        is_read = self._read == number and self._evaluates
        if is_read and self._steps and _is_distributed():
            self._is_whole = True
            self._awake.add(NAME)
        self._read = None

    def collective(self, name: str) -> None:
        self._is_gathered = self._is_gathered or not name.startswith(_ONE_WAY)

    def stepped(self) -> None:
        self._steps = True

    def optimizer_steps(self) -> float | None:
        """1: nothing was gathered since such a pass; None: there was none."""
        self._training_goes_on()
        self._awake.discard(NAME)
        found, self._found, self._is_whole = self._found, None, False
        return None if found is None else float(found)

    def _training_goes_on(self) -> None:
        """What is exchanged from now on is of the next step."""
        if self._is_whole and self._found is None:
            self._found = not self._is_gathered


def _is_distributed() -> bool:
    known = torch.distributed.is_available() and torch.distributed.is_initialized()
    return bool(known)
