"""Weights that were one tensor under two names, and are two when they train.

What is loaded into a model says which names are tied, for torch.save keeps shared
memory; and so does the model before it gets memory of its own (`to_empty`).
Looked at at the first step of an optimizer, and at its first after something more
was loaded.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from _traincheck import naming
from _traincheck.holds import parameters_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.observing import observe

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

    Pair = tuple[str, str]

_MAX_PAIRS = 64  # of one model
_MAX_MODELS = 64


class Ties:
    def __init__(self) -> None:
        self._expected: list[tuple[weakref.ref[torch.nn.Module], list[Pair]]] = []
        self._additions = 0  # to what is expected
        # What an optimizer was compared with: it holds the same until there is more.
        self._seen: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()

    def loading(self, module: Any, state: Any) -> None:
        """Called before a module takes over a state."""
        if isinstance(module, torch.nn.Module) and isinstance(state, dict):
            pairs = _tied(dict.items(state))
            # Who puts a state together may give one tensor to several layers of a
            # list, as the beginning of each: a module's own state says otherwise.
            if not hasattr(state, "_metadata"):
                pairs = [pair for pair in pairs if not _differ_by_number(*pair)]
            self._expect(module, pairs)

    def emptied(self, module: torch.nn.Module) -> None:
        """Called before its parameters get memory anew."""
        self._expect(module, _one_object(module))

    def lost(self, optimizer: torch.optim.Optimizer) -> int | None:
        """How many ties of its models are gone; None: they are to have none."""
        if not self._expected or self._seen.get(optimizer) == self._additions:
            return None
        self._seen.set(optimizer, self._additions)
        held = set(map(id, parameters_of(optimizer)))
        found, others = None, []
        for reference, pairs in self._expected:
            module = reference()
            if module is None:
                continue
            tensors = dict(_parameters(module))
            known = [
                (tensors[a], tensors[b])
                for a, b in pairs
                if a in tensors and b in tensors
            ]
            if any(id(a) in held or id(b) in held for a, b in known):
                found = (found or 0) + sum(not _is_one(a, b) for a, b in known)
            else:
                others.append((reference, pairs))
        self._expected = others
        return found

    def _expect(self, module: torch.nn.Module, pairs: list[Pair]) -> None:
        if pairs and len(self._expected) < _MAX_MODELS:
            self._additions += 1
            self._expected.append((weakref.ref(module), pairs[:_MAX_PAIRS]))


def _parameters(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [
        (naming.join(path, key), tensor)
        for path, part in naming.walk(module)
        for key, tensor in part._parameters.items()
        if tensor is not None
    ]


def _one_object(module: torch.nn.Module) -> list[Pair]:
    first: dict[int, str] = {}
    pairs = []
    for name, tensor in _parameters(module):
        other = first.setdefault(id(tensor), name)
        if other != name:
            pairs.append((other, name))
    return pairs


def _tied(entries: Iterable[tuple[Any, Any]]) -> list[Pair]:
    first: dict[Any, str] = {}
    pairs = []
    for name, tensor in entries:
        place = _place(tensor)
        if place is None or type(name) is not str:
            continue
        other = first.setdefault(place, name)
        if other != name:
            pairs.append((other, name))
    return pairs


def _differ_by_number(one: str, other: str) -> bool:
    """layers.0.weight and layers.1.weight do."""
    a, b = one.split("."), other.split(".")
    apart = [pair for pair in zip(a, b) if pair[0] != pair[1]]
    return len(a) == len(b) and all(x.isdigit() and y.isdigit() for x, y in apart)


def _place(tensor: Any) -> tuple[Any, ...] | None:
    """Memory and shape; None: no plain tensor with memory of its own."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if tensor.layout != torch.strided or tensor.is_meta or tensor.numel() == 0:
        return None
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # within vmap or grad of torch.func
        return None
    if address == 0:
        return None
    return tensor.device, address, tensor.dtype, tensor.shape, tensor.stride()


def _is_one(a: torch.Tensor, b: torch.Tensor) -> bool:
    place = _place(a)
    return a is b or (place is not None and place == _place(b))


def install(watch: Watch) -> None:
    def emptied(module: torch.nn.Module, args: Args, kwargs: Kwargs) -> None:
        watch.ties.emptied(module)

    observe(watch, torch.nn.Module, "to_empty", before=emptied)
