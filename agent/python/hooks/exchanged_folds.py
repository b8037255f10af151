"""A cross-validation whose folds share one model.

Each fold trains with what the others held out. Where the model goes on from one fold to
the next, it is evaluated on samples that it has learned. Seen by the parts of a data
set that are read, or of a table, where each part is a data set of its own: samples that
were evaluated are trained with now, others that were trained with are evaluated, and
the weights have not begun anew in between (lineages.py). What was a part of the
training as it is (a task, a client, a stage) is evaluated to see what is remembered of
it.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Subset, SubsetRandomSampler

from _traincheck.cut_rows import Cuts
from _traincheck.identity_map import WeakIdentityMap, is_possible_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.utils.data import DataLoader

    from _traincheck.lineages import Lineages

NAME = "loader.folds_share_model"  # of the scalar

_LOADERS = 1024  # that are looked at
_MOST = 200_000  # samples of a part
_PARTS = 64  # of the training, that are remembered
_WEIGHTS = 8  # with optimizers of their own, that are trained with a part
_SHARE = 1 / 2  # of what is evaluated
_KINDS = 8  # of parts that are tables, and their rows differ in shape


class _Part(NamedTuple):
    whole: Callable[[], Any]  # the data set; None: it is gone
    samples: frozenset[int]  # indices in it, or hashes of rows
    kind: tuple[Any, ...] = ()  # of the rows of a table; empty: indices


class _Course:
    """Of the parts of one kind."""

    def __init__(self, lineages: Lineages) -> None:
        self._lineages = lineages
        self._whole: Callable[[], Any] = lambda: None  # what all are parts of
        self._pending: frozenset[int] = frozenset()  # to train with, until a step
        self._is_later = False  # has another model been trained with a part?
        self._begins_anew()

    def _begins_anew(self) -> None:
        self._lineage = self._lineages.count
        self._now: frozenset[int] = frozenset()  # what is trained with
        # By the number of the weights that were stepped; and those of now.
        self._trained: dict[int, set[int]] = {}
        self._stepped: set[int] = set()
        self._parts: set[int] = set()  # hashes of those
        self._evaluated: set[int] = set()
        self._exchanges = False  # is something of that trained with now?

    def pass_begins(self, part: _Part, whole: Any) -> float | None:
        if self._whole() is not whole:
            self._whole, self._is_later = part.whole, False
            self._begins_anew()
        if torch.is_grad_enabled():
            self._pending = part.samples
            return None
        self._pending = frozenset()
        return self._evaluates(part.samples, part.kind != ())

    def optimizer_steps(self) -> None:
        if self._pending:
            self._trains()
        number = self._lineages.stepped_now
        if self._now and number not in self._stepped and len(self._stepped) < _WEIGHTS:
            self._stepped.add(number)
            if hash(self._now) in self._parts:
                self._trained.setdefault(number, set()).update(self._now)

    def _trains(self) -> None:
        """The first step with samples of a pass."""
        samples, self._pending = self._pending, frozenset()
        if self._lineage != self._lineages.count:
            self._is_later = self._is_later or bool(self._parts)
            self._begins_anew()
        self._exchanges = self._exchanges or not self._evaluated.isdisjoint(samples)
        if hash(samples) not in self._parts and len(self._parts) < _PARTS:
            self._parts.add(hash(samples))
        self._now = samples
        self._stepped.clear()

    def _evaluates(self, samples: frozenset[int], of_table: bool) -> float | None:
        apart = self._now.isdisjoint(samples) and hash(samples) not in self._parts
        self._evaluated |= samples
        if not apart or len(self._parts) + self._is_later < 2:
            return None
        # Other models are trained with other folds in turn.
        trained: set[int] = set()
        for number in self._stepped:
            trained |= self._trained.get(number, set())
        known = len(trained & samples)
        if known == 0:
            return 0.0
        # What is drawn from a table, of which nobody knows the whole, proves nothing:
        # folds are all of what has been trained with.
        if of_table and not trained <= self._now | samples:
            return None
        return 1.0 if self._exchanges and known >= _SHARE * len(samples) else None


class ExchangedFolds:
    def __init__(self, lineages: Lineages) -> None:
        self._lineages = lineages
        self._cuts = Cuts()
        self._parts_of: WeakIdentityMap[DataLoader, _Part] = WeakIdentityMap()
        self._looked = 0
        # By kind: indices, and tables of rows.
        self._courses: dict[tuple[Any, ...], _Course] = {}

    def pass_begins(self, loader: DataLoader) -> float | None:
        """1: most of what is evaluated was trained with in an earlier fold; 0: nothing of
        it, in a later fold; None: that is no question here."""
        part = self._part_of(loader)
        whole = part.whole()
        if whole is None:
            return None
        course = self._courses.get(part.kind)
        if course is None:
            if part.kind and len(self._courses) >= _KINDS:
                return None
            course = self._courses[part.kind] = _Course(self._lineages)
        return course.pass_begins(part, whole)

    def optimizer_steps(self) -> None:
        for course in self._courses.values():
            course.optimizer_steps()

    def _part_of(self, loader: DataLoader) -> _Part:
        known = self._parts_of.get(loader)
        if known is None:
            self._looked += 1
            known = _NO_PART
            if self._looked <= _LOADERS:
                known = _part_of(loader) or self._cut_of(loader)
            self._parts_of.set(loader, known)
        return known

    def _cut_of(self, loader: DataLoader) -> _Part:
        rows = self._cuts.rows_of(loader.dataset)
        if rows is None:
            return _NO_PART
        return _Part(self._tables, rows.hashes, rows.kind)

    def _tables(self) -> Any:
        """What all tables are parts of, whose rows have one shape."""
        return self


_NO_PART = _Part(lambda: None, frozenset())


def _part_of(loader: DataLoader) -> _Part | None:
    """_NO_PART: it is not known; None: all of a data set."""
    data, indices = loader.dataset, None
    sampler = getattr(loader, "sampler", None)
    if type(sampler) is SubsetRandomSampler:
        indices = sampler.indices
    while type(data) is Subset:
        own = data.indices
        if len(own) > _MOST:
            return _NO_PART
        indices = own if indices is None else [own[index] for index in indices]
        data = data.dataset
    if indices is None:
        return None
    if len(indices) > _MOST or not is_possible_key(data):
        return _NO_PART
    return _Part(weakref.ref(data), frozenset(int(index) for index in indices))
