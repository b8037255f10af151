"""Forwards that go on with weights of before the last step.

Autocast keeps its casts of float32 weights until the outermost region, enabled or not,
is left. A step within it changes the weights and not the casts: forwards behind it, in
the same region, compute with old ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args

    from _traincheck.awake import Awake
    from _traincheck.watch import Watch


class AutocastCasts:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._regions = 0  # within each other
        self._cleared = 0  # times that the outermost one was left
        # That number, when casts were made and when float32 was stepped.
        self._cast: int | None = None
        self._stepped: int | None = None
        self._stale: bool | None = None

    def entered(self) -> None:
        self._regions += 1

    def left(self) -> None:
        self._regions = max(0, self._regions - 1)
        self._cleared += self._regions == 0

    def forward_begins(self) -> None:
        """Called at outermost forwards that train, while autocast is on."""
        if _keeps_casts():
            self._awake.add("opt.stale_casts")
            stale = self._cast == self._stepped == self._cleared
            self._stale = bool(self._stale) or stale
            self._cast = self._cleared

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """1: its gradients are of old weights; None: no forward ran in a region."""
        said, self._stale = self._stale, None
        self._stepped = None
        if self._cast == self._cleared and _has_float32(optimizer):
            self._stepped = self._cleared
        return None if said is None else float(said)


def _keeps_casts() -> bool:
    enabled = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    return bool(enabled and torch.is_autocast_cache_enabled())


def _has_float32(optimizer: torch.optim.Optimizer) -> bool:
    return any(
        tensor.dtype is torch.float32
        for group in optimizer.param_groups
        for tensor in group["params"]
    )


def install(watch: Watch) -> None:
    region = torch.amp.autocast_mode.autocast

    def entered(self: Any, args: Args, result: Any) -> None:
        watch.autocast_casts.entered()

    def left(self: Any, args: Args, result: Any) -> None:
        watch.autocast_casts.left()

    observe(watch, region, "__enter__", after=entered)
    observe(watch, region, "__exit__", after=left)
