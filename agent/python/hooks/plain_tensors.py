"""Tensors of a module that get gradients and are not parameters.

`self.scale = torch.ones(1, requires_grad=True)` is an attribute: parameters() does not
give it, no optimizer gets it, no checkpoint holds it. So is what `.to()` makes of a
parameter that is moved or converted before it is assigned. Who trains such a tensor by
hand changes it between two steps. What a derivative is taken of, as points at which an
equation is to hold, gets gradients beside it.

A module that weighs losses is often none of a model: it is called, and has no parameters.
"""

from __future__ import annotations

import collections
import itertools
import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.device_values import first_of
from _traincheck.graph_nodes import inputs
from _traincheck.stray_terms import LEAF
from _traincheck.tensor_marks import TensorMark, has_mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.device_values import DeviceValues

NAME = ("opt.tensor_not_parameter", 0)

_OF_TORCH = frozenset(torch.nn.Module().__dict__) - {"_buffers"}
_MOST = 64  # entries of a list, and tensors
_ELEMENTS = 64  # that are compared
_CONVERTED = "ToCopyBackward0"
_CALLED = 16  # modules that are no models
_INPUTS = 16  # of derivatives, that are remembered; and those of one call


class _Look:
    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self.marks = list(map(TensorMark, tensors))
        self.values: list[torch.Tensor] = []  # once they have come

    def places_of(self, tensors: list[torch.Tensor]) -> list[tuple[int, int]]:
        """(place here, place there) of those that are the same."""
        return [
            (here, there)
            for here, mark in enumerate(self.marks)
            for there, tensor in enumerate(tensors)
            if mark.is_of(tensor)
        ]


class PlainTensors:
    def __init__(self, values: DeviceValues) -> None:
        self._values = values
        self._last = _Look([])
        self._said: float | None = None
        self._called: list[weakref.ref[torch.nn.Module]] = []
        # Of what derivatives were taken with autograd.grad.
        self._inputs: collections.deque[TensorMark]
        self._inputs = collections.deque(maxlen=_INPUTS)

    def calls(self, module: torch.nn.Module) -> None:
        """Called in training with one that has no parameters and encloses all others."""
        if len(self._called) >= _CALLED or type(module).__module__.startswith("torch."):
            return
        if not any(one() is module for one in self._called):
            self._called.append(weakref.ref(module))

    def takes(self, args: Args, kwargs: Kwargs) -> None:
        """Called with what autograd gives its engine: see penalties.py."""
        if kwargs.get("accumulate_grad", True) or len(args) < 5:
            return  # a backward
        for tensor in args[4][:_INPUTS]:
            is_plain = type(tensor) is torch.Tensor and has_mark(tensor)
            if is_plain and not self._is_input(tensor):
                self._inputs.append(TensorMark(tensor))

    def _is_input(self, tensor: torch.Tensor) -> bool:
        return any(mark.is_of(tensor) for mark in self._inputs)

    def _modules(self) -> Iterator[torch.nn.Module]:
        for one in self._called:
            module = one()
            if module is not None:
                yield from (part for _, part in naming.walk(module))

    def step_begins(self, modules: Iterable[torch.nn.Module], held: set[int]) -> None:
        """held: ids of what optimizers hold, or the models know as their own."""
        every = itertools.chain(modules, self._modules())
        found = {id(one): one for module in every for one in _trained_in(module)}
        if found:
            self._said = self._said or 0.0
        others = [tensor for key, tensor in found.items() if key not in held]
        others = [tensor for tensor in others if not self._is_input(tensor)]
        read = [one for one in others if has_mark(one) and self._values.reads(one)]
        read = read[:_MOST]
        last, now = self._last, _Look(read)
        same = last.places_of(read)
        self._last = now

        def take(values: list[torch.Tensor]) -> None:
            now.values = [value.clone() for value in values]
            if last.values:
                equal = (torch.equal(last.values[a], values[b]) for a, b in same)
                self._said = float(any(equal))

        if read:
            self._values.read([first_of(tensor, _ELEMENTS) for tensor in read], take)

    def is_found(self) -> float | None:
        """1: one had a gradient at two steps in a row and did not change in between;
        None: there is none."""
        return self._said


def _trained_in(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for name, value in module.__dict__.items():
        if name in _OF_TORCH:
            continue
        for entry in _entries(value):
            leaf = _leaf_of(entry)
            if leaf is not None and leaf.grad is not None:
                yield leaf


def _entries(value: Any) -> list[Any]:
    if type(value) is torch.Tensor:
        return [value]
    if type(value) in (list, tuple):
        return list(value[:_MOST])
    if isinstance(value, dict) and len(value) <= _MOST:
        return list(value.values())
    return []


def _leaf_of(entry: Any) -> torch.Tensor | None:
    """What the tensor is, or was converted from, if that requires a gradient."""
    if type(entry) is not torch.Tensor or not entry.requires_grad:
        return None
    node = entry.grad_fn
    if node is None:
        return entry
    given = inputs(node)
    if node.name() != _CONVERTED or not given or given[0].name() != LEAF:
        return None
    variable = getattr(given[0], "variable", None)
    return variable if isinstance(variable, torch.Tensor) else None
