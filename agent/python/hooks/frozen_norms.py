"""Frozen BatchNorms that are in training mode: requires_grad has no effect on them there.

They normalise by the batch, and their running statistics move away from those that the
frozen weights around them were trained with. Networks that are frozen as a whole give
targets (teachers.py), and what moves although it is frozen follows another network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in, parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.holds import Holds
    from _traincheck.models import Models

_ELEMENTS = 256


class FrozenNorms:
    def __init__(self, models: Models, holds: Holds) -> None:
        self._models = models
        self._holds = holds
        # Its parameters at the last look.
        self._norms: WeakIdentityMap[torch.nn.Module, bytes] = WeakIdentityMap()

    def look(self) -> float | None:
        """1: some is in training mode; 0: all are in evaluation mode; None: there are
        none, or it is not known yet."""
        found = [norm.training for norm in self._frozen() if self._stays(norm)]
        return float(any(found)) if found else None

    def _frozen(self) -> Iterator[torch.nn.Module]:
        """In models of which other parts are trained."""
        held = self._holds.held_tensors()
        for model in self._models.all():
            root = model.root()
            if root is None or not any(id(one) in held for one in parameters_in(root)):
                continue
            for module in modules_in(root):
                if not isinstance(module, _BatchNorm) or not module.affine:
                    continue
                if module.track_running_stats and not any(
                    one.requires_grad or id(one) in held
                    for one in parameters_in(module)
                ):
                    yield module

    def _stays(self, norm: torch.nn.Module) -> bool:
        """Was it the same at the last look? What follows another network was not. One
        on a device is not read."""
        parameters = list(parameters_in(norm))
        if not all(
            type(one) is torch.nn.Parameter and one.is_cpu for one in parameters
        ):
            return False
        content = b"".join(
            bytes(one.detach()[:_ELEMENTS].double().numpy().tobytes())
            for one in parameters
        )
        known = self._norms.get(norm)
        self._norms.set(norm, content)
        return known == content
