"""Indices that a loader's sampler or batch sampler yields, in the main process.

Their digest and their count, for loaders with workers too, and whether they are
drawn at random. An iterable dataset has no indices: count only.
"""

from __future__ import annotations

import array
import sys
from types import CodeType
from typing import TYPE_CHECKING

import torch
from torch.utils.data import dataloader
from torch.utils.data import sampler as samplers

from _traincheck.awake import NEW_DATA
from _traincheck.exchanged_folds import NAME as FOLDS_SHARE
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.observing import observe
from _traincheck.own_code import codes_of
from _traincheck.seeded_orders import NAME as SET_BACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from torch.utils.data import DataLoader
    from torch.utils.data.dataloader import _BaseDataLoaderIter as LoaderIterator
    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch

_TYPE = "torch.int64"
_RANDOM = (
    samplers.RandomSampler,
    samplers.SubsetRandomSampler,
    samplers.WeightedRandomSampler,
)

# Parts of names of what draws, and whole names.
_DRAWING = ("rand", "shuffl", "perm", "choice", "seed", "generator", "rng", "draw")
_DRAWING_NAMES = frozenset("sample multinomial uniform normal integers".split())
_NESTED = 4  # functions within each other


class _Pass:
    def __init__(self, loader: int, variable: int) -> None:
        self.loader = loader  # object number
        self.variable = variable
        self.begun = False
        self.count: float | None = None  # as last written
        # Does its first batch consist of one sample? None: it has not been drawn.
        self.repeats: bool | None = None


class Samplers:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._core = watch.core
        # loader -> (object number, variable)
        self._loaders: WeakIdentityMap[DataLoader, tuple[int, int]]
        self._loaders = WeakIdentityMap()
        self._names: dict[str, int] = {}
        self._passes: WeakIdentityMap[LoaderIterator, _Pass] = WeakIdentityMap()

    def begins(self, iterator: LoaderIterator, loader: DataLoader) -> None:
        known = self._loaders.get(loader)
        if known is None:
            known = self._define(loader)
            self._loaders.set(loader, known)
        self._passes.set(iterator, _Pass(*known))
        self._watch.awake.add(NEW_DATA)
        self._watch.sorted_samples.begins(loader)
        self._watch.balanced_draws.begins(iterator, loader)
        set_back = self._watch.seeded_orders.pass_begins(loader)
        if set_back is not None:
            point = self._core.POINT_FETCH
            self._core.record_scalar(known[0], point, 0, SET_BACK, set_back)
        shared = self._watch.shared_samples.begins(loader)
        if shared is not None:
            self._core.record_scalar(
                known[0],
                self._core.POINT_FETCH,
                0,
                "loader.shares_samples",
                float(shared),
            )
        if not torch.is_grad_enabled():
            self._watch.lineages.evaluates()
        folds = self._watch.exchanged_folds.pass_begins(loader)
        if folds is not None:
            point = self._core.POINT_FETCH
            self._core.record_scalar(known[0], point, 0, FOLDS_SHARE, folds)
        random = draws_at_random(loader)
        if random is None and orders_on_purpose(loader):
            random = False
        if random is not None:
            self._core.record_scalar(
                known[0], self._core.POINT_FETCH, 0, "shuffles", float(random)
            )

    def asks(self, iterator: LoaderIterator) -> None:
        """Called before a batch of indices is drawn."""
        current = self._passes.get(iterator)
        if current is not None and not current.begun:
            current.begun = True
            self._watch.generators.record(self._core.POINT_FETCH)

    def yields(self, iterator: LoaderIterator, indices: Any) -> None:
        current = self._passes.get(iterator)
        if current is None:
            return
        if current.repeats is None:
            current.repeats = _is_one_index(indices)
        if not self._watch.recorded.states:
            return
        core = self._core
        content, count = content_of(indices)
        if content is not None:
            core.record_bytes(core.POINT_FETCH, current.variable, content, _TYPE)
        if count != current.count:
            current.count = count
            core.record_scalar(current.loader, core.POINT_FETCH, 0, "indices", count)

    def repeats_one(self, iterator: LoaderIterator) -> bool:
        """Does the sampler ask for one sample many times (answers to one prompt)?"""
        current = self._passes.get(iterator)
        return current is not None and bool(current.repeats)

    def _define(self, loader: DataLoader) -> tuple[int, int]:
        core, short = self._core, type(loader).__name__
        self._names[short] = count = self._names.get(short, 0) + 1
        number = core.define_object(loader, core.OBJECT_LOADER)
        variable = core.define_variable(
            None,
            "indices",
            short if count == 1 else f"{short}#{count}",
            number,
            core.VARIABLE_LOADER_STATE,
            "",
            0,
        )
        return number, variable


def draws_at_random(loader: DataLoader) -> bool | None:
    """Is another order asked for in each pass? None: only its author knows."""
    batches: Any = getattr(loader, "batch_sampler", None)
    if batches is None:
        return _sampler_draws(loader.sampler)
    inner = getattr(batches, "sampler", None)
    if type(batches) is samplers.BatchSampler:
        return _sampler_draws(inner)
    # Of somebody's own: the sampler within it does not say in which order its
    # batches come, unless that one draws. The loader's is a stand-in.
    shuffle = getattr(batches, "shuffle", None)
    if isinstance(shuffle, bool):
        return shuffle
    return _sampler_draws(inner) or None


def _sampler_draws(sampler: Any) -> bool | None:
    if isinstance(sampler, samplers.SequentialSampler):
        return False
    if isinstance(sampler, _RANDOM):
        return True
    shuffle = getattr(sampler, "shuffle", None)
    known = isinstance(sampler, samplers.Sampler) and isinstance(shuffle, bool)
    return shuffle if known else None


def orders_on_purpose(loader: DataLoader) -> bool:
    """Has it a sampler of the user's own whose code draws nothing at random (samples
    from easy to hard, by their lengths)?"""
    batches: Any = getattr(loader, "batch_sampler", None)
    own: list[Any] = []
    for one in (batches, loader.sampler, getattr(batches, "sampler", None)):
        if one is not None and not type(one).__module__.startswith("torch."):
            own.append(one)
    return bool(own) and not any(map(_may_draw, own))


def _may_draw(sampler: Any) -> bool:
    """By its code and the samplers that it goes through."""
    codes = codes_of(type(sampler))
    attributes: Any = getattr(sampler, "__dict__", {})
    if not codes or any(isinstance(a, samplers.Sampler) for a in attributes.values()):
        return True
    names = {name for code in codes for name in _names_of(code, _NESTED)}
    module = sys.modules.get(type(sampler).__module__)
    around = vars(module) if module is not None else {}
    helpers = [getattr(around.get(name), "__code__", None) for name in names]
    for code in helpers:
        if isinstance(code, CodeType):
            names |= set(_names_of(code, _NESTED))
    names = {name.lower() for name in names}
    return any(part in name for name in names for part in _DRAWING) or bool(
        names & _DRAWING_NAMES
    )


def _names_of(code: CodeType, depth: int) -> Iterator[str]:
    """Those that it and the functions within it use."""
    yield from code.co_names
    yield from code.co_freevars
    yield from code.co_varnames
    for inner in code.co_consts if depth > 0 else ():
        if isinstance(inner, CodeType):
            yield from _names_of(inner, depth - 1)


def _is_one_index(indices: Any) -> bool:
    plain = isinstance(indices, (list, tuple)) and len(indices) > 1
    return plain and all(
        type(index) is int and index == indices[0] for index in indices
    )


def content_of(indices: Any) -> tuple[bytes | None, float]:
    """(the indices as int64 in bytes, how many); None: no plain integers."""
    if type(indices) is int:
        indices = (indices,)
    if isinstance(indices, torch.Tensor):
        if indices.device.type != "cpu" or indices.is_floating_point():
            return None, float(indices.numel())
        indices = indices.flatten().tolist()
    if not isinstance(indices, (list, tuple)):
        return None, 1.0
    # An index may be anything; what is no number of Python's or numpy's is
    # not asked for one.
    if indices and not (
        type(indices[0]) is int or type(indices[0]).__module__ == "numpy"
    ):
        return None, float(len(indices))
    try:
        return array.array("q", indices).tobytes(), float(len(indices))
    except (TypeError, OverflowError):
        return None, float(len(indices))


def install(watch: Watch) -> None:
    def begins(iterator: LoaderIterator, args: Args, kwargs: Kwargs) -> None:
        watch.samplers.begins(iterator, args[0])

    def asks(iterator: LoaderIterator, args: Args, kwargs: Kwargs) -> None:
        watch.samplers.asks(iterator)

    def yields(iterator: LoaderIterator, args: Args, indices: Any) -> None:
        watch.samplers.yields(iterator, indices)
        watch.moved_parts.asks(iterator, indices)
        watch.balanced_draws.yields(iterator, indices)

    base = dataloader._BaseDataLoaderIter
    # The second is for workers that are kept for the next pass.
    observe(watch, base, "__init__", before=begins)
    observe(watch, base, "_reset", before=begins)
    observe(watch, base, "_next_index", before=asks, after=yields)
