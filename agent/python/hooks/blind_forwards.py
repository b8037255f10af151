"""Parts of a model whose forward is decorated with no_grad, although they are trained.

    @torch.no_grad()
    def forward(self, picture): ...

Such a forward gives its parameters no gradient, whatever the optimizer holds. A teacher
or a frozen tower has parameters that are frozen or in no optimizer.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.looks import looks_at
from _traincheck.module_content import modules_in, parameters_in
from _traincheck.sources import site_of, unwrapped

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

    from _traincheck.models import Models
    from _traincheck.step_lines import StepLines

# Name of the scalar.
NAME = "opt.forward_without_gradients"

_OFF = (torch.no_grad, torch.inference_mode)


class BlindForwards:
    def __init__(self, core: Core, models: Models, lines: StepLines) -> None:
        self._core = core
        self._models = models
        self._lines = lines
        self._steps: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()
        self._said: WeakIdentityMap[torch.optim.Optimizer, bool] = WeakIdentityMap()
        self._decorated: dict[type[Any], bool] = {}

    def steps(self, optimizer: torch.optim.Optimizer) -> bool | None:
        """Called as its step begins: does it hold all trained parameters of such a
        part, and has none of them a gradient? None: no part is decorated so."""
        number = self._steps.get(optimizer) or 0
        self._steps.set(optimizer, number + 1)
        # Parts may be unfrozen late, and called once in a while.
        if looks_at(number):
            said = self._look(optimizer)
            if said is None:
                self._said.discard(optimizer)
            else:
                self._said.set(optimizer, said)
        return self._said.get(optimizer)

    def _look(self, optimizer: torch.optim.Optimizer) -> bool | None:
        parts = list(self._parts())
        if not parts:
            return None
        held = {
            id(parameter): parameter.grad is not None
            for parameter in parameters_of(optimizer)
        }
        if not any(held.values()):
            return None  # it says nothing of this part
        found = None
        for part in parts:
            trained = [p for p in parameters_in(part) if p.requires_grad]
            given = [held.get(id(parameter)) for parameter in trained]
            if given and None not in given:
                found = bool(found) or not any(given)
                if not any(given):
                    self._lines.at(NAME, self._line_of(type(part)), optimizer)
        return found

    def _line_of(self, kind: type[Any]) -> int:
        """Number of the site of its forward, with its decorators."""
        forward = getattr(kind, "forward", None)
        if not isinstance(forward, types.FunctionType):
            return 0
        inner = unwrapped(forward)
        line = inner.__code__.co_firstlineno
        return site_of(self._core, inner.__globals__, line)

    def _parts(self) -> list[torch.nn.Module]:
        roots = [model.root() for model in self._models.all()]
        modules = (
            part for root in roots if root is not None for part in modules_in(root)
        )
        return [part for part in modules if self._is_decorated(type(part))]

    def _is_decorated(self, kind: type[Any]) -> bool:
        known = self._decorated.get(kind)
        if known is None:
            known = _turns_off(getattr(kind, "forward", None))
            self._decorated[kind] = known
        return known


def _turns_off(function: Any) -> bool:
    """Is it what torch makes of a function that no_grad or inference_mode decorates?"""
    if getattr(function, "__wrapped__", None) is None:
        return False
    for cell in getattr(function, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # it is empty
            continue
        # A bound method of the context, or a function that calls it.
        if isinstance(getattr(content, "__self__", None), _OFF):
            return True
    return False
