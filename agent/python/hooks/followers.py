"""Networks that follow another one slowly, and did not begin as its copy.

A target network or a momentum encoder (a module, or what a class of the user's keeps in a
list or dictionary: averaging_classes.py) moves a small share of the way to its source
after each step. One that began from other random numbers is a stranger for the first
hundreds of steps. A follower is known by its moves: the same share of the way for all
elements. Where a state was loaded, source and follower may well lie apart. One whose
first move goes all of the way begins as a copy then. How it moves shows all the same: a
state is also how most target networks begin, target.load_state_dict(net.state_dict()).

One that moves half of the way or more after each step smooths nothing: it has taken the
share that it is to keep for the share that it is to move, or computes its decay from the
decay before. Where this share falls, its decay is still rising to what it is to be. One
that moves away from its source has the sign of the difference wrong.
"""

from __future__ import annotations

import collections
import weakref
from itertools import chain
from typing import TYPE_CHECKING

import torch

from _traincheck.averaging_classes import entries_of
from _traincheck.device_values import first_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.module_content import modules_in, named_parameters_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from _traincheck.awake import Awake
    from _traincheck.device_values import DeviceValues
    from _traincheck.holds import Holds
    from _traincheck.models import Models

    Get = Callable[[], torch.Tensor | None]

_STEPS = 24  # of all optimizers, that are looked at
_MODULES = 2000
_ELEMENTS = 64
_FEWEST = 8  # elements of a parameter that is looked at
_MOST = 0.5  # share of the way; more is a copy
_APART = 0.3  # distance at the beginning, in lengths of the source
# Shares of one that keeps too little. What is rounded on its way is nearly a copy.
_LEADS = (0.4, 0.9995)
_FLEES = 2  # looks at which one that moves away has done so
_WARM = 8  # looks in which averages may move fast
_TIMES = 5  # looks in a row at which the share has to stay or rise
_FALLS = 1e-3  # of the share, in these looks
_COPIED = 1e-4  # distance of what has been copied, in lengths of the source

# Names of the scalars.
_NAMES = ("opt.follower_apart", "opt.follower_flees", "opt.follower_leads")


class _Pair:
    """One tensor that follows, and that of its source."""

    def __init__(self, follower: Get, source: Get) -> None:
        self._both = (follower, source)
        self.before: torch.Tensor | None = None
        self.apart = False
        self.follows = False
        self.looks = 0
        # The shares of the last looks at which it had moved.
        self.shares: collections.deque[float] = collections.deque(maxlen=_TIMES)
        self.leads = False
        self.flees = 0  # looks at which it had moved away

    def tensors(self) -> list[torch.Tensor]:
        """The follower's and the source's, as they are now; none if they are gone."""
        found = [get() for get in self._both]
        tensors = [tensor for tensor in found if tensor is not None]
        return tensors if len(tensors) == len(found) else []

    def look(self, now: torch.Tensor, source: torch.Tensor) -> None:
        """Called with both as they are at a step."""
        now, source = now.double(), source.double()
        before, self.before = self.before, now.clone()
        self.looks += 1
        if before is None:
            self.apart = _distance(now, source) > _APART
        elif now.shape == before.shape:
            share = share_of_the_way(before, now, source)
            self.follows = self.follows or 1e-4 < share <= _MOST
            self.flees += -_MOST <= share < -1e-4
            if share > 1e-4:
                self.shares.append(share)
                self.leads = self.leads or self._leads()
            if not self.follows and _distance(now, source) <= _COPIED:
                self.apart = False

    def _leads(self) -> bool:
        if self.looks <= _WARM or len(self.shares) < _TIMES:
            return False
        low, high = _LEADS
        is_much = all(low < share < high for share in self.shares)
        return is_much and self.shares[-1] > self.shares[0] - _FALLS


def parameter_of(module: torch.nn.Module, name: str) -> Get:
    """None: it is gone, or has no parameter of this name."""
    reference = weakref.ref(module)

    def get() -> torch.Tensor | None:
        owner = reference()
        return None if owner is None else dict(named_parameters_in(owner)).get(name)

    return get


def _distance(now: torch.Tensor, source: torch.Tensor) -> float:
    """In lengths of the source."""
    return float((now - source).norm() / source.norm())


def share_of_the_way(
    before: torch.Tensor, now: torch.Tensor, source: torch.Tensor
) -> float:
    """To where the source is now; 0: not the same one for all elements."""
    way, moved = source - before, now - before
    clear = way.abs() > 1e-4
    if int(clear.sum()) < _FEWEST // 2 or not bool((moved != 0).any()):
        return 0.0
    shares = moved[clear] / way[clear]
    share = float(shares.median())
    # Nearly a copy: what rounding moves is no share.
    most = 0.02 * abs(share) + 1e-4 if share <= _MOST else 1 - _LEADS[1]
    return share if bool(((shares - share).abs() <= most).all()) else 0.0


class Followers:
    def __init__(
        self, models: Models, holds: Holds, values: DeviceValues, awake: Awake
    ) -> None:
        self._values = values
        self._awake = awake
        awake.update(_NAMES)
        self._models = models
        self._holds = holds
        self._pairs: list[_Pair] = []
        self._keepers: WeakIdentityMap[Any, bool] = WeakIdentityMap()
        self._has_modules = False  # among them
        self._known: int | None = None  # generation of the models, when looked for
        self._steps = 0
        self._loaded = False
        self._said: float | None = None

    def updates(self, keeper: Any) -> None:
        """Called when an object may have updated averages that it keeps."""
        if self._steps < _STEPS and self._keepers.get(keeper) is None:
            pair = _pair_of(keeper, self._models)
            self._keepers.set(keeper, True)
            if pair is not None:
                self._pairs.append(pair)

    def loads(self) -> None:
        """Some module loads a state."""
        self._loaded = True

    def optimizer_steps(self) -> float | None:
        """1: a network that follows did not begin as a copy; None: none follows."""
        if self._steps < _STEPS:
            self._steps += 1
            # A copy is known from the end of the first step on.
            if not self._has_modules and self._known != self._models.generation:
                self._known = self._models.generation
                found = list(self._find())
                self._has_modules = bool(found)
                self._pairs += found
            self._look_at(self._pairs)
        elif not self._pairs:
            self._awake.difference_update(_NAMES)  # none will follow any more
        for pair in self._pairs:
            if pair.follows and not self._loaded:
                self._said = float(bool(self._said) or pair.apart)
        return self._said

    def leads(self) -> float | None:
        """1: one that should follow moves half of the way after each step; None: none
        follows."""
        if any(pair.leads for pair in self._pairs):
            return 1.0
        return 0.0 if any(pair.follows for pair in self._pairs) else None

    def flees(self) -> float | None:
        """1: one moves away from its source after each step; None: as leads()."""
        if any(pair.flees >= _FLEES and not pair.follows for pair in self._pairs):
            return 1.0
        return 0.0 if any(pair.follows for pair in self._pairs) else None

    def _look_at(self, pairs: list[_Pair]) -> None:
        read: list[_Pair] = []
        few: list[torch.Tensor] = []
        for pair in pairs:
            tensors = pair.tensors()
            if tensors and all(map(self._values.reads, tensors)):
                read.append(pair)
                few += [first_of(tensor, _ELEMENTS) for tensor in tensors]

        def take(values: list[torch.Tensor]) -> None:
            for i, pair in enumerate(read):
                pair.look(values[2 * i], values[2 * i + 1])

        if few:
            self._values.read(few, take)

    def _find(self) -> Iterator[_Pair]:
        """Modules that are built alike, of which one is trained and one is not."""
        held = self._holds.held_tensors()
        sources: dict[Any, torch.nn.Module] = {}
        followers: list[tuple[Any, torch.nn.Module]] = []
        roots = [model.root() for model in self._models.all()]
        modules = chain.from_iterable(modules_in(root) for root in roots if root)
        for number, module in enumerate(modules):
            if number == _MODULES:
                return
            named = list(named_parameters_in(module))
            kind = tuple((name, tensor.shape) for name, tensor in named)
            tensors = [tensor for _, tensor in named]
            trained = [id(tensor) in held for tensor in tensors]
            if len(named) < 2 or any(
                type(t) is not torch.nn.Parameter for t in tensors
            ):
                continue
            if all(trained):
                sources.setdefault(kind, module)
            elif not any(trained):
                followers.append((kind, module))
        for kind, follower in followers:
            name = next((n for n, shape in kind if shape.numel() >= _FEWEST), None)
            source = sources.get(kind)
            if source is not None and name is not None:
                yield _Pair(parameter_of(follower, name), parameter_of(source, name))


def _pair_of(keeper: Any, models: Models) -> _Pair | None:
    """The first entry that is large enough, of a list or dictionary with the shapes of a
    model's parameters."""
    for model in models.all():
        root = model.root()
        named = [] if root is None else list(named_parameters_in(root))
        for kept in entries_of(keeper, named):
            for name, parameter in named:
                if parameter.numel() >= _FEWEST and kept.has(name):
                    return _Pair(kept.getter(name), parameter_of(root, name))
    return None
