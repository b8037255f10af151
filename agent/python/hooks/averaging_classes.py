"""Classes of the user's that keep averages of parameters in a list or a dictionary.

    class EMA:
        def __init__(self, model, decay):
            self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        def update(self, model): ...

Such an average is no module, and nothing of torch's is called for it. It is found by its
class: by the words that its name or its methods use. What its methods are called with is
left alone; what it keeps is compared with the parameters once it was updated.
"""

from __future__ import annotations

import re
import types
import weakref
from typing import TYPE_CHECKING

import torch
from torch.optim import swa_utils

from _traincheck import source_files
from _traincheck.carried_metrics import is_metric
from _traincheck.identity_map import is_possible_key
from _traincheck.observing import observe
from _traincheck.sources import unwrapped, waits
from _traincheck.user_classes import user_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

_WORDS = frozenset(("average", "averaged", "averages", "ema", "polyak", "shadow"))
_MEAN_WORDS = {"decay", "means"}  # together
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_UPDATES = frozenset(("call", "step", "update"))  # a word of the method's name
# Words of methods that update a target network.
_TARGETS = frozenset(("target", "targets"))
_MOVES = frozenset(("copy", "hard", "soft", "sync", "update"))
_SOFT = frozenset(("soft", "update"))  # together
_WEIGHTS = frozenset(("named_parameters", "parameters", "state_dict"))
_MOST = 2000  # entries
_FUNCTIONS = ("avg_fn", "multi_avg_fn")  # of an AveragedModel


def look(watch: Watch) -> None:
    """Observes the classes that there are; called at an optimizer's first step."""

    for cls in user_classes():
        if is_metric(cls):
            continue  # of what it is given, not of weights
        functions = {
            name: one
            for name, one in vars(cls).items()
            if isinstance(one, types.FunctionType)
        }
        averages = _is_about_averages(cls.__name__, functions)
        for name, function in functions.items():
            if averages and not _UPDATES.isdisjoint(_words(name)):
                _observe(watch, cls, function, name)
            elif _moves_targets(_words(name)):
                _observe(watch, cls, function, name, of_average=False)
    source_files.forget()
    _observe_torchs(watch)


def _observe_torchs(watch: Watch) -> None:
    """An AveragedModel, if it is no mean of all weights so far."""
    cls = swa_utils.AveragedModel
    names = unwrapped(cls.update_parameters).__code__.co_names

    def ended(model: Any, args: Args, result: Any) -> None:
        functions = (vars(model).get(name) for name in _FUNCTIONS)
        if any(one is not None for one in functions):
            watch.repeated_averages.updated(model, names)

    observe(watch, cls, "update_parameters", after=ended)


def _observe(
    watch: Watch,
    cls: type[Any],
    function: types.FunctionType,
    name: str,
    of_average: bool = True,
) -> None:
    """of_average: else it updates a target network."""
    method = None if waits(function) else unwrapped(function)
    names = unwrapped(function).__code__.co_names
    mixes = not of_average and reads_weights(function)

    def begins(keeper: Any, args: Args, kwargs: Kwargs) -> None:
        if not is_possible_key(keeper):
            return
        if of_average:
            watch.averages_in_place.update_begins(keeper)
        if method is not None:
            watch.standing_averages.update_begins(keeper, method)
            if mixes:
                watch.standing_averages.mixing_begins(args, method)

    def ended(keeper: Any, args: Args, result: Any) -> None:
        if not is_possible_key(keeper):
            return
        if of_average:
            watch.averages_in_place.updated(keeper)
            watch.followers.updates(keeper)
            watch.repeated_averages.updated(keeper, names)
        if method is not None:
            watch.standing_averages.updated(keeper)
            if mixes:
                watch.standing_averages.mixed(args)

    if of_average or method is not None:
        observe(watch, cls, name, before=begins, after=ended)


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def _moves_targets(words: set[str]) -> bool:
    of_targets = not _TARGETS.isdisjoint(words) and not _MOVES.isdisjoint(words)
    return of_targets or _SOFT <= words


def moves_averages(name: str) -> bool:
    """Does a function of this name update an average or a target network?"""
    words = _words(name)
    of_average = not _WORDS.isdisjoint(words) and not _UPDATES.isdisjoint(words)
    return of_average or _moves_targets(words)


def reads_weights(function: types.FunctionType) -> bool:
    """Of what it is given, itself?"""
    names = unwrapped(function).__code__.co_names
    return not _WEIGHTS.isdisjoint(names)


def _is_about_averages(name: str, functions: dict[str, types.FunctionType]) -> bool:
    names = {name, *functions}
    for function in functions.values():
        names.update(function.__code__.co_names)
    words = {word for one in names for word in _words(one)}
    return not _WORDS.isdisjoint(words) or _MEAN_WORDS <= words


class Kept:
    """A list or dictionary of tensors, an attribute of an object; by the names of the
    parameters that they belong to. It keeps neither alive."""

    def __init__(self, keeper: Any, attribute: str, keys: dict[str, Any]) -> None:
        self._keeper = weakref.ref(keeper)
        self.attribute = attribute
        self._keys = keys

    def has(self, name: str) -> bool:
        return name in self._keys

    def getter(self, name: str) -> Callable[[], torch.Tensor | None]:
        def get() -> torch.Tensor | None:
            keeper = self._keeper()
            entries = {} if keeper is None else vars(keeper).get(self.attribute, {})
            key = self._keys[name]
            try:
                found = entries[key]
            except (KeyError, IndexError):
                return None
            return found if _is_plain(found) else None

        return get


def entries_of(keeper: Any, named: list[tuple[str, torch.Tensor]]) -> Iterator[Kept]:
    """Those of the shapes of these parameters, or of the ones among them that require a
    gradient."""
    trained = [(name, one) for name, one in named if one.requires_grad]
    for attribute, value in getattr(keeper, "__dict__", {}).items():
        for some in (named, trained):
            keys = _keys_for(value, some)
            if keys:
                yield Kept(keeper, attribute, keys)
                break


def _keys_for(value: Any, named: list[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    """Empty: it holds other things."""
    if not 0 < len(named) <= _MOST:
        return {}
    if isinstance(value, dict):
        keys: dict[str, Any] = {name: name for name, _ in named if name in value}
        fit = len(keys) == len(named)
    elif type(value) is list:
        keys = {name: place for place, (name, _) in enumerate(named)}
        fit = len(value) == len(named)
    else:
        return {}
    alike = fit and all(
        _is_plain(value[keys[name]])
        and value[keys[name]] is not tensor
        and value[keys[name]].shape == tensor.shape
        for name, tensor in named
    )
    return keys if alike else {}


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter)
