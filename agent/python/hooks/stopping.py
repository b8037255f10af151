"""Ends the training once so many steps have closed (TRAINCHECK_STOP_AFTER).

A few steps show most mistakes; whoever looks at these alone needs no training
of hours. The process leaves as after sys.exit(): by a SystemExit out of the call
that closed the step, so that `finally` blocks and exit functions of user code
run. Code that catches it meets it again at the end of its next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traincheck_core import Core

    from _traincheck.process import Process


class Stopping:
    def __init__(self, core: Core, process: Process) -> None:
        self._core = core
        self._process = process
        # The core has refused whatever is no number.
        self._after = int(core.setting("TRAINCHECK_STOP_AFTER") or 0)

    def step_closed(self) -> None:
        """Called last of all that belongs to the step; may raise SystemExit.

        A thread that trains beside the main one ends as after sys.exit(), alone.
        """
        if not self._after or self._core.open_step() < self._after:
            return
        # Workers load for a main process that has to end in order, and a process
        # that is ending anyway closes its last step by itself.
        if not self._process.is_main() or not self._process.active:
            return
        self._core.log_once(
            "stop", f"the training ends here: TRAINCHECK_STOP_AFTER={self._after}"
        )
        raise SystemExit(0)
