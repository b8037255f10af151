"""Models in a wrapper that may be called past it.

A generator's loss goes through a critic that is frozen meanwhile: there is nothing to
reduce. Where ranks are averaged now and then (model_averaging.py) they train apart in
between. And wrapper.forward(x) is a call through the wrapper that leaves out its hooks.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from traincheck_core import Core

    from _traincheck.models import Model
    from _traincheck.models import Models

# Name of the scalar of a model; read by the fact call.inside_wrapper.
_NAME = "wrapped.is_frozen"

_FRAMES = 16  # between a wrapper's forward and the call of the model within


class WrappedModels:
    def __init__(self, core: Core, models: Models) -> None:
        self._core = core
        self._models = models
        self._frozen: dict[int, bool] = {}  # by number: as was said last
        self._averaged = False

    def wrapped(self, variables: Iterable[int]) -> None:
        """Called with all variables of a model that was wrapped."""
        for variable in variables:
            root = self._models.root_of(variable)
            if root is not None:
                self._frozen.setdefault(root, False)

    def models_are_averaged(self) -> None:
        self._averaged = True

    def forward_begins(self, model: Model) -> None:
        """Called at outermost forwards that train. What excuses a call is said within
        each, so that nothing depends on records before it."""
        said = self._frozen.get(model.number)
        if said is None:
            return
        frozen = self._averaged or not any(
            tensor.requires_grad for _, _, tensor in model.params()
        )
        frozen = frozen or _runs_in_wrapper()
        if frozen or said:
            core = self._core
            point = core.POINT_FORWARD_BEGIN
            core.record_scalar(model.number, point, 0, _NAME, float(frozen))
        self._frozen[model.number] = frozen


def _runs_in_wrapper() -> bool:
    code = torch.nn.parallel.DistributedDataParallel.forward.__code__
    frame = sys._getframe(1)
    for _ in range(_FRAMES):
        if frame.f_code is code:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False
