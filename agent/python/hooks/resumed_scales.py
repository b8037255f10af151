"""Loss scales that begin anew where the optimizer goes on.

A GradScaler finds its scale in the first hundreds of steps, and its state belongs
into a checkpoint. Without it a resumed training begins with the initial scale: its
first gradients overflow, and the steps are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap

if TYPE_CHECKING:
    from typing import Any

    from _traincheck.awake import Awake


class ResumedScales:
    def __init__(self, awake: Awake) -> None:
        self._awake = awake
        self._loaded = False  # has an optimizer loaded a state with moments?
        # scaler -> does its scale go on, or was there nothing to go on with?
        self._known: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._said: float | None = None

    def optimizer_loads(self, state: Any) -> None:
        if isinstance(state, dict) and state.get("state"):
            self._loaded = True

    def scaler_loads(self, scaler: Any) -> None:
        self._known.set(scaler, True)

    def scales(self, scaler: Any) -> None:
        if not getattr(scaler, "_enabled", False):
            return
        goes_on = self._known.get(scaler)
        if goes_on is None:
            goes_on = not self._loaded
            self._known.set(scaler, goes_on)
        if self._loaded:
            self._said = float(bool(self._said) or not goes_on)
            self._awake.add("opt.scale_begins_anew")

    def optimizer_steps(self) -> float | None:
        """1: the optimizer goes on and the scale does not; None: no resume."""
        return self._said
