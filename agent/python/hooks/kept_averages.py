"""Averaged weights that were put into a model and are still in it.

    ema.store(parameters); ema.copy_to(parameters); validate(); ema.restore(parameters)

Classes of this shape (of diffusers, torch_ema, and many copies of them) keep the trained
weights while the averages stand in for them. Without restore() the training goes on from
the averages, and the moments of the optimizer belong to other weights. At the end of a
training the averages are put in without being stored, and stay.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from _traincheck import averaging_classes
from _traincheck import averaging_functions
from _traincheck.observing import observe
from _traincheck.user_classes import user_classes

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args

    from _traincheck.step_lines import StepLines
    from _traincheck.watch import Watch

# Name of the scalar.
NAME = "opt.average_left_in"

_METHODS = ("store", "copy_to", "restore")
_KEPT = 16  # objects that are followed


class KeptAverages:
    def __init__(self, lines: StepLines) -> None:
        self._lines = lines
        self._looked = False
        # Of what has stored the trained weights, and not restored them: are its own in?
        self._stored: dict[int, bool] = {}  # by id
        self._was_used = False

    def look(self, watch: Watch) -> None:
        """Observes classes of this shape, once; called at an optimizer's first step."""
        if not self._looked:
            self._looked = True
            averaging_classes.look(watch)
            averaging_functions.look(watch)
            for cls in user_classes():
                own = vars(cls)
                if all(isinstance(own.get(m), types.FunctionType) for m in _METHODS):
                    _observe(watch, cls)

    def optimizer_made(self) -> None:
        """Another training begins: what the one before left in its model stays there."""
        self._stored.clear()

    def stores(self, averages: Any) -> None:
        if len(self._stored) < _KEPT:
            self._stored[id(averages)] = False

    def puts_in(self, averages: Any) -> None:
        if id(averages) in self._stored:
            self._stored[id(averages)] = True
            self._lines.here(NAME)

    def restores(self, averages: Any) -> None:
        if self._stored.pop(id(averages), False):
            self._was_used = True

    def steps(self) -> float | None:
        """Called as a step begins. 1: averages are in the model, and the trained weights
        that they stand in for are still stored; None: nobody has put any in."""
        if any(self._stored.values()):
            # Said once: from here on they are the weights that are trained.
            self._stored.clear()
            self._was_used = True
            return 1.0
        return 0.0 if self._was_used else None


def _observe(watch: Watch, cls: type[Any]) -> None:
    def stores(averages: Any, args: Args, result: Any) -> None:
        watch.kept_averages.stores(averages)

    def puts_in(averages: Any, args: Args, result: Any) -> None:
        watch.kept_averages.puts_in(averages)

    def restores(averages: Any, args: Args, result: Any) -> None:
        watch.kept_averages.restores(averages)

    observe(watch, cls, "store", after=stores)
    observe(watch, cls, "copy_to", after=puts_in)
    observe(watch, cls, "restore", after=restores)
