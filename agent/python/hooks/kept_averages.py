"""Averaged weights that were put into a model and are still in it.

    ema.store(parameters); ema.copy_to(parameters); validate(); ema.restore(parameters)

Classes of this shape (of diffusers, torch_ema, and many copies of them) keep the trained
weights while the averages stand in for them. Without restore() the training goes on from
the averages, and the moments of the optimizer belong to other weights. At the end of a
training the averages are put in without being stored, and stay.

    ema.apply_shadow(); validate(); ema.restore()

The other shape in which this is copied about stores and puts in by one call. Whoever
reads the trained weights back into the model instead has restored them as well.
"""

from __future__ import annotations

import types
import weakref
from itertools import chain
from typing import TYPE_CHECKING

import torch

from _traincheck import averaging_classes
from _traincheck import averaging_functions
from _traincheck.holds import parameters_of
from _traincheck.module_content import parameters_in
from _traincheck.observing import observe
from _traincheck.user_classes import user_classes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from traincheck_core import Args

    from _traincheck.step_lines import StepLines
    from _traincheck.watch import Watch

# Name of the scalar.
NAME = "opt.average_left_in"

_METHODS = ("store", "copy_to", "restore")
_AT_ONCE = ("apply_shadow", "restore")  # which stores by itself
_KEPT = 16  # objects that are followed


class KeptAverages:
    def __init__(self, lines: StepLines) -> None:
        self._lines = lines
        self._looked = False
        # Of what has stored the trained weights, and not restored them: are its own in?
        self._stored: dict[int, bool] = {}  # by id
        # The models of those that store by themselves.
        self._models: dict[int, list[weakref.ref[torch.nn.Module]]] = {}
        self._was_used = False

    def look(self, watch: Watch) -> None:
        """Observes classes of this shape, once; called at an optimizer's first step."""
        if not self._looked:
            self._looked = True
            averaging_classes.look(watch)
            averaging_functions.look(watch)
            for cls in user_classes():
                own = vars(cls)
                if _has(own, _METHODS):
                    _observe(watch, cls)
                elif _has(own, _AT_ONCE):
                    _observe_at_once(watch, cls)

    def optimizer_made(self) -> None:
        """Another training begins: what the one before left in its model stays there."""
        self._clear()

    def stores(self, averages: Any) -> None:
        if len(self._stored) < _KEPT:
            self._stored[id(averages)] = False

    def puts_in(self, averages: Any) -> None:
        if id(averages) in self._stored:
            self._stored[id(averages)] = True
            self._lines.here(NAME)

    def stores_and_puts_in(self, averages: Any, args: Args) -> None:
        self.stores(averages)
        if id(averages) in self._stored:
            held = chain(args, vars(averages).values())
            modules = [one for one in held if issubclass(type(one), torch.nn.Module)]
            self._models[id(averages)] = [weakref.ref(one) for one in modules]
        self.puts_in(averages)

    def loads(self, module: torch.nn.Module) -> None:
        """A state was loaded into the module."""
        for key, models in list(self._models.items()):
            if any(_inner(model()) is _inner(module) for model in models):
                del self._models[key]
                self._was_used = self._stored.pop(key, False) or self._was_used

    def restores(self, averages: Any) -> None:
        self._models.pop(id(averages), None)
        if self._stored.pop(id(averages), False):
            self._was_used = True

    def steps(self, optimizer: torch.optim.Optimizer) -> float | None:
        """Called as a step begins. 1: averages are in the model, and the trained weights
        that they stand in for are still stored; None: nobody has put any in."""
        left_in = [key for key, is_in in self._stored.items() if is_in]
        if left_in and any(self._is_trained(key, optimizer) for key in left_in):
            # Said once: from here on they are the weights that are trained.
            self._clear()
            self._was_used = True
            return 1.0
        return 0.0 if self._was_used else None

    def _is_trained(self, key: int, optimizer: torch.optim.Optimizer) -> bool:
        """Are they in what it steps, and not in a copy that is only evaluated? What
        stores on its own demand is taken to store what is trained."""
        models = self._models.get(key)
        if models is None:
            return True
        held = set(map(id, parameters_of(optimizer)))
        known = (one for model in models if (one := model()) is not None)
        return any(id(p) in held for model in known for p in parameters_in(model))

    def _clear(self) -> None:
        self._stored.clear()
        self._models.clear()


def _has(own: Mapping[str, Any], methods: tuple[str, ...]) -> bool:
    return all(isinstance(own.get(name), types.FunctionType) for name in methods)


def _inner(module: Any) -> Any:
    """What is wrapped, of a wrapper (DistributedDataParallel)."""
    return module if module is None else module._modules.get("module") or module


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


def _observe_at_once(watch: Watch, cls: type[Any]) -> None:
    def puts_in(averages: Any, args: Args, result: Any) -> None:
        watch.kept_averages.stores_and_puts_in(averages, args)

    def restores(averages: Any, args: Args, result: Any) -> None:
        watch.kept_averages.restores(averages)

    observe(watch, cls, "apply_shadow", after=puts_in)
    observe(watch, cls, "restore", after=restores)
