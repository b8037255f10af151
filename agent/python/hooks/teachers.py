"""Frozen networks that drop out, or move their statistics, in the training of another.

A teacher, a reference policy or a feature extractor gives targets. In training mode
its dropout makes them random and its BatchNorms drift. Such a network is known by
this: it is called step after step, no optimizer holds a part of it unless all of it is
frozen, and nothing moves it (a momentum encoder and a mean teacher move). It may have
been trained before: with each new optimizer all are looked at anew. Within a model it goes by its name.
Several calls a step may estimate uncertainty. Norms without weights that gather
statistics learn by being called in training mode: they make inputs alike.
"""

from __future__ import annotations

import collections
import functools
import itertools
import weakref
from typing import TYPE_CHECKING

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from _traincheck.device_values import first_of
from _traincheck.evaluations import depends_on_mode
from _traincheck.module_content import modules_in, parameters_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.holds import Holds
    from _traincheck.models import Model

_STEPS = 3  # in which it was called, and did not move, before it is judged
_LOOKS = 8  # at steps, afterwards
_CALLS = 2  # a step; more estimate uncertainty
_ELEMENTS = 16
_PARAMETERS = 8  # of which some elements are compared
_NAMES = ("teacher", "ref_model", "reference_model")
_DEPTH = 3  # components of a teacher's name within a model


class _Network:
    """One that may be a teacher."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = weakref.ref(module)
        self.elements: int | None = None  # hash of some, once they have come
        self.steps = 0
        self.is_done = False

    def take(self, values: list[torch.Tensor]) -> None:
        elements = hash(tuple(tuple(value.tolist()) for value in values))
        if self.elements is not None and self.elements != elements:
            self.is_done = True
        self.elements = elements
        self.steps += 1


class Teachers:
    def __init__(self, holds: Holds, values: DeviceValues, awake: Awake) -> None:
        self._awake = awake
        self._holds = holds
        self._values = values
        # Models that were called since the last step, and how often.
        self._calls: collections.Counter[int] = collections.Counter()
        self._networks: dict[int, list[_Network]] = {}  # by number of the model

    def optimizer_made(self) -> None:
        """What was trained so far may be a teacher from now on."""
        self._networks.clear()
        self._calls.clear()

    def forward_begins(self, model: Model) -> None:
        """Called at outermost forwards, with or without gradients."""
        networks = self._networks.get(model.number)
        if networks is None:
            networks = list(map(_Network, _candidates(model)))
            self._networks[model.number] = networks
        if networks:
            self._calls[model.number] += 1
            self._awake.add("opt.teacher_drops")

    def optimizer_steps(self) -> float | None:
        """1: a teacher drops out or moves its statistics; 0: one that could does not;
        None: there is none, or it is not known yet."""
        if not self._calls:
            return None
        calls, self._calls = self._calls, collections.Counter()
        held = self._holds.held_tensors()
        found: list[bool] = []
        for number, times in calls.items():
            for network in self._networks[number]:
                said = self._look(network, held)
                if said is not None and times <= _CALLS:
                    found.append(said)
            left = [one for one in self._networks[number] if not one.is_done]
            self._networks[number] = left
        return float(any(found)) if found else None

    def _look(self, network: _Network, held: set[int]) -> bool | None:
        """None: it is no teacher, or that is not known yet."""
        module = network.module()
        few = None if module is None else self._few(module, held)
        if module is None or few is None:
            network.is_done = True
            return None
        self._values.read(few, network.take)
        if network.is_done or network.steps <= _STEPS:
            return None
        network.is_done = network.steps > _STEPS + _LOOKS
        return any(part.training for part in modules_in(module) if _matters(part))

    def _few(
        self, module: torch.nn.Module, held: set[int]
    ) -> list[torch.Tensor] | None:
        """Elements of it; None: it is trained, or it cannot be read."""
        trains = any(parameter.requires_grad for parameter in parameters_in(module))
        if trains and any(id(parameter) in held for parameter in parameters_in(module)):
            return None
        parameters = list(itertools.islice(parameters_in(module), _PARAMETERS))
        if not parameters or not all(map(self._reads, parameters)):
            return None
        return [first_of(parameter, _ELEMENTS) for parameter in parameters]

    def _reads(self, parameter: torch.Tensor) -> bool:
        plain = type(parameter) is torch.nn.Parameter
        return plain and self._values.reads(parameter)


def _matters(part: torch.nn.Module) -> bool:
    """Is its mode that of the network?"""
    gathers = isinstance(part, _BatchNorm) and not part.affine
    return depends_on_mode(part) and not gathers


def _candidates(model: Model) -> Iterator[torch.nn.Module]:
    """The model, and what it calls its teachers, if their mode matters."""
    root = model.root()
    if root is None:
        return
    for name, module in root.named_modules():
        last = name.rpartition(".")[2]
        named = name.count(".") < _DEPTH and any(word in last for word in _NAMES)
        if (module is root or named) and any(map(_matters, modules_in(module))):
            yield module
