"""GradScaler: its scale, and whether a gradient was not finite.

On a GPU these are tensors there, and reading them would wait for it: not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from _traincheck.hyper_parameters import number_of
from _traincheck.observing import observe

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

_ATTRIBUTES = {"scale": "_scale", "growth_tracker": "_growth_tracker"}


class _Scaling:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def updates(self, scaler: Any, args: Args, kwargs: Kwargs) -> None:
        """Before: the update forgets what was found for which optimizer."""
        watch, core = self._watch, self._watch.core
        found = _found_by_optimizer(scaler)
        for optimizer in watch.holds.optimizers():
            value = found.get(id(optimizer))
            if value is not None:
                watch.found_inf.write(
                    optimizer,
                    core.OBJECT_OPTIMIZER,
                    core.POINT_POST_STEP,
                    {("found_inf", 0): value},
                )

    def updated(self, scaler: Any, args: Args, result: Any) -> None:
        core, scalars = self._watch.core, {}
        for name, attribute in _ATTRIBUTES.items():
            number = number_of(getattr(scaler, attribute, None))
            if number is not None:
                scalars[(name, 0)] = number
        self._watch.scalars.write(
            scaler, core.OBJECT_OTHER, core.POINT_POST_STEP, scalars
        )


def _found_by_optimizer(scaler: Any) -> dict[int, float]:
    """id of the optimizer -> 0 or 1; those that are not known are left out."""
    found = {}
    for number, state in getattr(scaler, "_per_optimizer_states", {}).items():
        values = [number_of(v) for v in state["found_inf_per_device"].values()]
        if values and None not in values:
            found[number] = float(any(values))
    return found


def install(watch: Watch) -> None:
    scaling = _Scaling(watch)
    observe(
        watch,
        torch.amp.GradScaler,
        "update",
        before=scaling.updates,
        after=scaling.updated,
    )
