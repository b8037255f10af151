"""Replicas that draw the same random numbers.

Ranks that begin with one seed have equal weights, and from then on equal noise, equal
dropout and equal draws of what is hidden: each rank repeats what the others draw. Seen
by the state of torch's generators at the beginnings of two steps, on ranks that
DistributedDataParallel keeps equal.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement
from _traincheck.generators import drawn_state

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

# Name of the scalar.
NAME = "opt.ranks_draw_alike"

_STEPS = 4  # that are compared, of those that draw
_LOOKED_AT = 16  # steps
_HABIT = 2


class RankDraws:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._wrapped = False
        self._steps = 0
        self._compared = 0
        self._alike = 0
        self._begin: bytes | None = None  # at this step's forward
        self._former: bytes | None = None  # at the last one's

    def wrapped(self, group: Any) -> None:
        """Called when a model is: by all ranks, or there are others to be like."""
        size = torch.distributed.get_world_size(group)
        world = torch.distributed.get_world_size()
        self._wrapped = size > 1 and size == world

    def forward_begins(self) -> None:
        """Called at outermost forwards that train."""
        if self._wrapped and self._begin is None and self._steps < _LOOKED_AT:
            self._begin = hashlib.blake2b(drawn_state(), digest_size=16).digest()

    def optimizer_steps(self) -> float | None:
        """1: this rank draws what another one does; None: it is the one that others are
        compared with, nothing was drawn, or it was said."""
        if self._begin is None:
            return None
        self._steps += 1
        former, self._former, self._begin = self._former, self._begin, None
        drawn = former is not None and former != self._former
        if not drawn or self._compared == _STEPS:
            return None
        self._compared += 1
        said = self._is_alike(f"{former!r} {self._former!r}")
        if said is None:
            return None
        self._alike = self._alike + 1 if said else 0
        return float(self._alike >= _HABIT) if self._alike != 1 else None

    def _is_alike(self, drawn: str) -> bool | None:
        key = f"draws {self._compared}"
        what = "the random numbers of the ranks"
        return run_agreement.repeats(self._core, what, key, drawn)
