"""Steps that a GradScaler leaves out because a gradient is not finite."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING

import torch

from _traincheck.graph_nodes import inputs
from _traincheck.observing import observe
from _traincheck.wrapping import quietly

if TYPE_CHECKING:
    from typing import Any

    from torch.autograd.graph import Node

    from _traincheck.awake import Awake
    from _traincheck.watch import Watch


def _observe(watch: Watch, cls: type[Any]) -> None:
    decide: Any = cls.__dict__.get("_maybe_opt_step")
    if not isinstance(decide, types.FunctionType):
        return

    @functools.wraps(decide)
    def observed(
        self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        before = watch.clock.steps_begun()
        quietly(watch.core, watch.scaler_steps.scaler_begins, optimizer)
        try:
            result = decide(self, optimizer, *args, **kwargs)
        except BaseException as error:
            # As in observing.py: no frame of ours in tracebacks.
            error.__traceback__ = error.__traceback__.tb_next  # type: ignore[union-attr]
            raise
        finally:
            quietly(watch.core, watch.scaler_steps.scaler_ended, optimizer)
        if watch.clock.steps_begun() == before:
            quietly(watch.core, _skipped, watch, optimizer)
        return result

    setattr(observed, "_torchdynamo_disable", True)
    setattr(cls, "_maybe_opt_step", observed)


class HalfPrecision:
    """Do forwards run in float16 without anybody scaling the loss? Small gradients
    are zero then."""

    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._half = False
        self._scaled = False

    def forward_begins(self) -> None:
        """Called at outermost forwards that train, while autocast is on."""
        if not self._half and _casts_to_half():
            self._half = True
            self._awake.add("opt.float16_unscaled")

    def scales(self) -> None:
        self._scaled = True

    def awaits_scale(self) -> bool:
        """Does something run in float16, of which no loss has been scaled so far?"""
        return self._half and not self._scaled

    def backward_begins(self, roots: list[Node]) -> None:
        """A loss that is multiplied by a number may be scaled by hand."""
        self._scaled = any(
            root.name() == "MulBackward0" and len(inputs(root)) == 1 for root in roots
        )

    def optimizer_steps(self) -> float | None:
        """1: they do; None: nothing runs in float16."""
        return float(not self._scaled) if self._half else None


def _casts_to_half() -> bool:
    return any(
        torch.is_autocast_enabled(kind)
        and torch.get_autocast_dtype(kind) == torch.float16
        for kind in ("cuda", "cpu")
    )


def _skipped(watch: Watch, optimizer: torch.optim.Optimizer) -> None:
    watch.loaders.flush()
    watch.discarded_backwards.skips(optimizer)
    watch.schedules.skips(optimizer)
    held = watch.holds.ensure(optimizer)
    watch.clock.optimizer_skips(held.number)


def install(watch: Watch) -> None:
    # Both scalers of torch.cuda.amp and the sharded one inherit it. A step that
    # an optimizer itself leaves out (fused ones are told what was found) is
    # decided on the device and not seen here.
    _observe(watch, torch.amp.GradScaler)

    def scales(scaler: Any, args: Any, kwargs: Any) -> None:
        watch.half_precision.scales()
        watch.resumed_scales.scales(scaler)

    observe(watch, torch.amp.GradScaler, "scale", before=scales)
    observe(
        watch,
        torch.amp.GradScaler,
        "load_state_dict",
        after=lambda scaler, args, result: watch.resumed_scales.scaler_loads(scaler),
    )
