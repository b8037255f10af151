"""Frozen networks beside a wrapped model that differ between ranks.

A random projection that makes the codes of a training without labels, a random target
network, a table of prototypes: nothing trains them, so that they are given to no wrapper,
and nobody sends the first rank's to the others. Where ranks are seeded apart, each rank
has its own, and the gradients of different tasks are averaged. On the CPU the ranks
compare what did not change in three steps in a row in which it was called. What was
loaded is left alone: ranks may have teachers of their own on purpose.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from _traincheck import run_agreement
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in, parameters_in

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Core

    from _traincheck.awake import Awake
    from _traincheck.models import Model

# Name of the scalar.
NAME = "opt.frozen_part_apart"

_HABIT = 3  # steps in a row
_GIVES_UP = 64  # steps after its first call
_NETWORKS = 16  # that are compared
_MODELS = 256
_BYTES = 1 << 26  # of one
_FEWEST = 16  # elements: fewer may be a setting
_PLAIN = (torch.Tensor, torch.nn.Parameter)
# Statistics are each rank's own.
_GATHERS = torch.nn.modules.batchnorm._NormBase


class _Row:
    """One network that is frozen."""

    def __init__(self, model: Model, number: int) -> None:
        self.root = model.root
        self.number = number  # of its class
        self.called = False  # since the last step
        self.age = 0  # steps
        self.steps = 0  # in a row in which it was called
        self.first = b""  # its digest at the first of them


class FrozenParts:
    def __init__(self, core: Core, awake: Awake) -> None:
        self._core = core
        self._awake = awake
        self._wrapped = False
        self._rows: dict[int, _Row | None] = {}  # by number of the model
        self._classes: dict[str, int] = {}  # how many of each there are
        self._loaded: WeakIdentityMap[torch.nn.Module, bool] = WeakIdentityMap()
        self._compared = 0

    def wrapped(self, group: Any) -> None:
        """Called when a model is: by all ranks, or there are others to be like."""
        size = torch.distributed.get_world_size(group)
        world = torch.distributed.get_world_size()
        self._wrapped = size > 1 and size == world

    def loads(self, module: torch.nn.Module) -> None:
        """It has taken a state."""
        self._loaded.set(module, True)

    def forward_begins(self, model: Model) -> None:
        """Called at outermost forwards, with or without gradients."""
        if not self._wrapped:
            return
        if model.number not in self._rows and len(self._rows) < _MODELS:
            self._rows[model.number] = self._row(model)
        row = self._rows.get(model.number)
        if row is not None:
            row.called = True
            self._awake.add(NAME)

    def _row(self, model: Model) -> _Row | None:
        """None: it is not frozen, or cannot be compared."""
        root = model.root()
        if root is None or self._compared == _NETWORKS:
            return None
        if any(parameter.requires_grad for parameter in parameters_in(root)):
            return None
        if any(self._loaded.get(module) for module in modules_in(root)):
            return None
        if not _constants(root):
            return None
        self._compared += 1
        name = type(root).__name__
        self._classes[name] = self._classes.get(name, 0) + 1
        return _Row(model, self._classes[name])

    def optimizer_steps(self) -> float | None:
        """Called as a step begins. 1: a network that is frozen is another one on another
        rank; None: there is none, or that was said."""
        said: list[float] = []
        for number, row in list(self._rows.items()):
            if row is None:
                continue
            row.age += 1
            row.steps, row.called = row.steps + 1 if row.called else 0, False
            if row.steps in (1, _HABIT):
                found = self._look(row)
                said += [found] if found is not None else []
            if row.steps == _HABIT or row.age >= _GIVES_UP:
                self._rows[number] = None
        if not any(row is not None for row in self._rows.values()):
            self._awake.discard(NAME)
        return max(said) if said else None

    def _look(self, row: _Row) -> float | None:
        root = row.root()
        if root is None or not torch.distributed.is_initialized():
            return None
        if any(parameter.requires_grad for parameter in parameters_in(root)):
            return None
        tensors = _constants(root)
        digests = self._core.digests(tensors) if tensors else None
        if digests is None:
            return None
        content = hashlib.blake2b(digests, digest_size=16).digest()
        if row.steps == 1:
            row.first = content
            return None
        if content != row.first or any(map(self._loaded.get, modules_in(root))):
            return None  # it moves: an average of the model
        shapes = hashlib.blake2b(repr([list(one.shape) for one in tensors]).encode())
        kind = f"{type(root).__name__} {row.number} {shapes.hexdigest()[:16]}"
        what = "networks that nobody trains"
        key = f"frozen {kind}"
        return run_agreement.differs(self._core, what, key, content.hex())


def _constants(root: torch.nn.Module) -> list[torch.Tensor]:
    """All that it computes with; none: it is nothing to compare."""
    found: list[torch.Tensor] = []
    for module in modules_in(root):
        found += module._parameters.values()
        if not isinstance(module, _GATHERS):
            found += module._buffers.values()
    tensors = [one.detach() for one in found if one is not None]
    if not all(one.is_cpu and type(one) in _PLAIN for one in tensors):
        return []
    if sum(one.nbytes for one in tensors) > _BYTES:
        return []
    floats = (one.numel() for one in tensors if one.is_floating_point())
    return tensors if max(floats, default=0) >= _FEWEST else []
