"""Evaluations that a model goes through in training mode.

It drops out, normalises by the batches of the evaluation and moves its statistics
towards them. An evaluation is told by how it reads its data: a pass over a loader
without a single backward, one forward a batch. What is run without gradients between
two steps (labels that a model makes for itself, samples of a generator), and several
forwards of one batch (dropout that estimates uncertainty) are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in

if TYPE_CHECKING:
    from _traincheck.models import Model

# Name of the scalar: 1 if it is so, 0 if the model is in evaluation mode.
NAME = "loader.evaluated_in_training"
_LOADERS = 256  # that are remembered


class Evaluations:
    def __init__(self) -> None:
        # Roots that have trained in training mode: does the mode matter to them?
        self._trained: WeakIdentityMap[torch.nn.Module, bool] = WeakIdentityMap()
        self._pass: int | None = None  # the loader read since the last backward
        # The latest loaders that were trained with, and of each: was it once read without
        # training, in training mode?
        self._trained_with: dict[int, bool] = {}
        self._said = False  # in this pass
        # Modes of the first two forwards since the last batch.
        self._modes: list[bool] = []

    def pass_begins(self, loader: int) -> None:
        self._pass, self._said = loader, False
        self._modes.clear()

    def backward_begins(self) -> None:
        if self._pass is not None:
            gathered = self._trained_with.pop(self._pass, False)
            self._trained_with[self._pass] = gathered
            if len(self._trained_with) > _LOADERS:
                del self._trained_with[next(iter(self._trained_with))]
        self._pass = None
        self._modes.clear()

    def trains(self, model: Model) -> None:
        """Called at outermost forwards with gradients."""
        root = model.root()
        if root is None or not root.training or self._trained.get(root) is not None:
            return
        self._trained.set(root, any(map(depends_on_mode, modules_in(root))))

    def evaluates(self, model: Model) -> None:
        """Called at outermost forwards without."""
        root = model.root()
        if root is None or self._pass is None or self._said or len(self._modes) > 1:
            return
        if self._trained.get(root) and not (root.training and _gathers(root)):
            self._modes.append(root.training)

    def fetched(self, loader: int) -> float | None:
        """Called for every batch, with what the one before says."""
        if loader != self._pass or self._said:
            return None
        modes = self._modes.copy()
        self._modes.clear()
        self._said = bool(modes)
        if len(modes) != 1 or (modes[0] and self._may_gather(loader)):
            return None
        return float(modes[0])

    def _may_gather(self, loader: int) -> bool:
        """Is this the first time that what trains is read without training?"""
        if self._trained_with.get(loader, True):
            return False
        self._trained_with[loader] = True
        return True


def depends_on_mode(module: torch.nn.Module) -> bool:
    """Is this layer another one in training mode?"""
    if isinstance(module, _DropoutNd):
        return bool(module.p > 0)
    return isinstance(module, _BatchNorm) and module.track_running_stats


def _gathers(root: torch.nn.Module) -> bool:
    """Are statistics just being gathered (update_bn, precise BatchNorm)? Without a
    momentum they are the mean over all batches, with 1 those of the batch."""
    norms = [module for module in modules_in(root) if isinstance(module, _BatchNorm)]
    return bool(norms) and all(norm.momentum in (None, 1.0) for norm in norms)
