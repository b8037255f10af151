"""Networks that follow another one slowly, and did not begin as its copy.

A target network or a momentum encoder moves a small share of the way to its source
after each step. One that began from other random numbers is a stranger for the first
hundreds of steps. A follower is known by its moves: the same share of the way for all
elements. Where a state was loaded, source and follower may well lie apart.
"""

from __future__ import annotations

import weakref
from itertools import chain
from typing import TYPE_CHECKING

import torch

from _traincheck.holds import parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _traincheck.holds import Holds
    from _traincheck.models import Models

_STEPS = 24  # of all optimizers, that are looked at
_MODULES = 2000
_ELEMENTS = 64
_FEWEST = 8  # elements of a parameter that is looked at
_MOST = 0.5  # share of the way; more is a copy
_APART = 0.3  # distance at the beginning, in lengths of the source


class _Pair:
    """Parts of a follower's parameter and of its source's."""

    def __init__(self, follower: torch.Tensor, source: torch.Tensor) -> None:
        self.follower = weakref.ref(follower)
        self.source = weakref.ref(source)
        self.before = _part(follower)
        first = _part(source)
        self.apart = bool((self.before - first).norm() > _APART * first.norm())

    def follows(self) -> bool:
        """Has it moved a share of the way to where its source is now?"""
        follower, source = self.follower(), self.source()
        if follower is None or source is None:
            return False
        now, way = _part(follower), _part(source) - self.before
        moved, self.before = now - self.before, now
        clear = way.abs() > 1e-4
        if int(clear.sum()) < _FEWEST // 2 or not bool((moved != 0).any()):
            return False
        shares = moved[clear] / way[clear]
        share = float(shares.median())
        alike = bool(((shares - share).abs() <= 0.02 * abs(share) + 1e-4).all())
        return alike and 1e-4 < share <= _MOST


class Followers:
    def __init__(self, models: Models, holds: Holds) -> None:
        self._models = models
        self._holds = holds
        self._pairs: list[_Pair] | None = None
        self._steps = 0
        self._loaded = False
        self._said: float | None = None

    def loads(self) -> None:
        """Some module loads a state."""
        self._loaded = True

    def optimizer_steps(self) -> float | None:
        """1: a network that follows did not begin as a copy; None: none follows."""
        if self._steps < _STEPS and not self._loaded:
            self._steps += 1
            if self._pairs is None:
                self._pairs = list(self._find())
            for pair in self._pairs:
                if pair.follows():
                    self._said = float(bool(self._said) or pair.apart)
        return self._said

    def _find(self) -> Iterator[_Pair]:
        """Modules that are built alike, of which one is trained and one is not."""
        optimizers = self._holds.optimizers()
        held = {id(tensor) for one in optimizers for tensor in parameters_of(one)}
        sources: dict[Any, list[torch.Tensor]] = {}
        followers: list[tuple[Any, list[torch.Tensor]]] = []
        roots = [model.root() for model in self._models.all()]
        modules = chain.from_iterable(root.modules() for root in roots if root)
        for number, module in enumerate(modules):
            if number == _MODULES:
                return
            named = list(module.named_parameters())
            kind = tuple((name, tensor.shape) for name, tensor in named)
            tensors = [tensor for _, tensor in named]
            trained = [id(tensor) in held for tensor in tensors]
            if len(named) < 2 or any(
                type(t) is not torch.nn.Parameter for t in tensors
            ):
                continue
            if all(trained):
                sources.setdefault(kind, tensors)
            elif not any(trained):
                followers.append((kind, tensors))
        for kind, tensors in followers:
            for follower, source in zip(tensors, sources.get(kind, ())):
                if follower.is_cpu and source.is_cpu and follower.numel() >= _FEWEST:
                    yield _Pair(follower, source)
                    break


def _part(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1)[:_ELEMENTS].double()
