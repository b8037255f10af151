"""Replicas that draw the same noise for their batches.

Ranks that begin with one seed have equal weights, and from then on draw equal noise,
times and masks: each rank repeats what the others draw. Looked at is what the loop draws
between a batch and the forward that it is given to, on ranks that
DistributedDataParallel keeps equal. Dropout within the model is left alone: trainers
seed all ranks alike by default.
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
        self._given: bytes | None = None  # the state when the last batch came
        # The states then and at the forward after it.
        self._drawn: tuple[bytes, bytes] | None = None

    def wrapped(self, group: Any) -> None:
        """Called when a model is: by all ranks, or there are others to be like."""
        size = torch.distributed.get_world_size(group)
        world = torch.distributed.get_world_size()
        self._wrapped = size > 1 and size == world

    def batch_fetched(self) -> None:
        looks = self._steps < _LOOKED_AT and self._compared < _STEPS
        if self._wrapped and looks:
            self._given, self._drawn = _state(), None

    def forward_begins(self) -> None:
        """Called at outermost forwards that train."""
        if self._given is not None and self._drawn is None:
            self._drawn = (self._given, _state())

    def optimizer_steps(self) -> float | None:
        """1: this rank draws what another one does; None: it is the one that others are
        compared with, nothing was drawn, or it was said."""
        drawn, self._given, self._drawn = self._drawn, None, None
        if drawn is None:
            return None
        self._steps += 1
        if drawn[0] == drawn[1]:
            return None
        if not torch.distributed.is_initialized():
            return None  # it was destroyed since
        self._compared += 1
        said = self._is_alike(f"{drawn[0].hex()} {drawn[1].hex()}")
        if said is None:
            return None
        self._alike = self._alike + 1 if said else 0
        return float(self._alike >= _HABIT) if self._alike != 1 else None

    def _is_alike(self, drawn: str) -> bool | None:
        key = f"draws {self._compared}"
        what = "the random numbers of the ranks"
        return run_agreement.repeats(self._core, what, key, drawn)


def _state() -> bytes:
    return hashlib.blake2b(drawn_state(), digest_size=16).digest()
