"""Metrics of the user's that collect batches and go on from one evaluation to the next.

    class Accuracy:
        def update(self, logits, label): ...      # adds up
        def compute(self): return self.right / self.total
        def reset(self): ...                      # nobody calls it

From the second evaluation on such a metric gives a mean over all evaluations so far. The
values are smooth and lag behind; the best weights are those of the past.

An evaluation is a row of updates without a training between them, with batches of a
loader, whose result is then asked for. Looked at is the metric's own state: a later
evaluation of the same loader begins with exactly what the one before ended with, however
it could have been reset, and the same number of samples or batches is added each time.
"""

from __future__ import annotations

import re
import types
from typing import TYPE_CHECKING

from _traincheck.identity_map import WeakIdentityMap, is_possible_key
from _traincheck.metric_state import counts_of, numbers_in, state_of
from _traincheck.observing import observe
from _traincheck.user_classes import user_classes

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.awake import Awake
    from _traincheck.metric_state import Counts, State
    from _traincheck.untrained_passes import UntrainedPasses
    from _traincheck.watch import Watch

# Name of the scalar of an optimizer.
NAME = "opt.metric_carried_on"

_ADDS = ("update", "update_state", "add", "add_batch")
_GIVES = ("compute", "result", "value")
_RESETS = ("reset", "reset_states", "reset_state")
# Words of what looks back on purpose: of classes, and of attributes.
_LONG = frozenset(
    "cumulative ema exponential global lifetime moving overall running smooth smoothed "
    "total window".split()
)
_SHARES = frozenset("alpha beta decay ema momentum smoothing window".split())
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CARRIED = 2  # times in a row
_EVALUATIONS = 64  # of one metric that are looked at
_METRICS = 64
_FEWEST = 2  # batches of an evaluation


class _Row:
    """One metric. Of the evaluation that goes on, or was the last one:"""

    def __init__(self) -> None:
        self.evaluations = 0
        self.trainings = 0  # before it
        self.loader = 0
        self.read = 0  # batches of all loaders, at its last update
        self.batches = 0  # with updates
        self.begin: State | None = None
        self.end: State | None = None  # once its result was asked for
        # What each evaluation so far has added, as long as that is the same.
        self.added: Counts | None = None
        self.carried = 0  # times in a row

    def forget(self) -> None:
        self.batches = self.carried = 0
        self.begin = self.end = self.added = None


class CarriedMetrics:
    def __init__(self, passes: UntrainedPasses, awake: Awake) -> None:
        self._passes = passes
        self._awake = awake
        self._looked = False
        self._rows: WeakIdentityMap[Any, _Row] = WeakIdentityMap()
        self._said: float | None = None

    def look(self, watch: Watch) -> None:
        """Observes classes of this shape, once; called at an optimizer's first step."""
        if not self._looked:
            self._looked = True
            classes = user_classes()
            of_user = set(map(id, classes))
            for cls in filter(is_metric, classes):
                for one in cls.__mro__:
                    if id(one) in of_user:
                        _observe(watch, one)

    def optimizer_made(self) -> None:
        """Another training begins, whose evaluations may be added to those before."""
        for row in self._rows.values():
            row.forget()

    def adds(self, metric: Any) -> None:
        """Called before an update."""
        row = self._row_of(metric)
        if row is None:
            return
        if not row.batches or row.trainings != self._passes.trainings():
            self._begins(row, metric)
        elif row.read != self._passes.reads():
            row.batches += 1
            row.read = self._passes.reads()

    def gives(self, metric: Any) -> None:
        """Called before its result is computed."""
        row = self._rows.get(metric) if is_possible_key(metric) else None
        if row is None or row.trainings != self._passes.trainings():
            return
        if row.batches >= _FEWEST and row.begin is not None:
            row.end = state_of(metric)

    def gave(self, metric: Any, result: Any) -> None:
        """What is no number, as predictions, may be averaged over evaluations."""
        row = self._rows.get(metric) if is_possible_key(metric) else None
        if (
            row is not None
            and row.end is not None
            and not any(True for _ in numbers_in(result))
        ):
            row.forget()

    def resets(self, metric: Any) -> None:
        row = self._rows.get(metric) if is_possible_key(metric) else None
        if row is None:
            return
        if row.end is not None:
            self._say(0.0)
        row.forget()

    def optimizer_steps(self) -> float | None:
        """1: a metric goes on from one evaluation to the next; None: none was seen in
        two of them."""
        return self._said

    def _row_of(self, metric: Any) -> _Row | None:
        """None: it is looked at no more."""
        if not is_possible_key(metric):
            return None
        row = self._rows.get(metric)
        if row is None:
            if len(self._rows) >= _METRICS:
                return None
            row = _Row()
            self._rows.set(metric, row)
        return row if row.evaluations < _EVALUATIONS else None

    def _begins(self, row: _Row, metric: Any) -> None:
        begin, end, loader = row.begin, row.end, self._passes.loader()
        row.evaluations += 1
        state = state_of(metric) if loader and not _looks_back(metric) else None
        if state is None:
            row.forget()
        elif begin is not None and end is not None and loader == row.loader:
            self._goes_on(row, begin, end, state)
        else:
            row.added, row.carried = None, 0
        row.trainings, row.loader = self._passes.trainings(), loader
        row.batches, row.read = 1, self._passes.reads()
        row.begin, row.end = state, None

    def _goes_on(self, row: _Row, begin: State, end: State, now: State) -> None:
        """The last evaluation led from `begin` to `end`; the next one begins `now`."""
        added = _grown(begin, end)
        if row.added is not None:
            added = {k: v for k, v in added.items() if row.added.get(k) == v}
        if not added or now != end:
            counts, before = counts_of(now), counts_of(end)
            if added and all(counts.get(key, 0) < before[key] for key in added):
                self._say(0.0)
            row.added, row.carried = None, 0
            return
        row.added = added
        row.carried += 1
        if row.carried >= _CARRIED:
            self._say(1.0)
            row.evaluations = _EVALUATIONS

    def _say(self, value: float) -> None:
        self._said = max(self._said or 0.0, value)
        self._awake.add(NAME)


def is_metric(cls: type[Any]) -> bool:
    """Does it collect, give a result of what it has, and begin anew?"""
    methods = {
        name
        for one in cls.__mro__
        for name, value in vars(one).items()
        if type(value) is types.FunctionType
    }
    return all(not methods.isdisjoint(names) for names in (_ADDS, _GIVES, _RESETS))


def _observe(watch: Watch, cls: type[Any]) -> None:
    def adds(metric: Any, args: Args, kwargs: Kwargs) -> None:
        watch.carried_metrics.adds(metric)

    def gives(metric: Any, args: Args, kwargs: Kwargs) -> None:
        watch.carried_metrics.gives(metric)

    def gave(metric: Any, args: Args, result: Any) -> None:
        watch.carried_metrics.gave(metric, result)

    def resets(metric: Any, args: Args, result: Any) -> None:
        watch.carried_metrics.resets(metric)

    for name in _ADDS:
        observe(watch, cls, name, before=adds)
    for name in _GIVES:
        observe(watch, cls, name, before=gives, after=gave)
    for name in _RESETS:
        observe(watch, cls, name, after=resets)


def _grown(begin: State, end: State) -> Counts:
    """Counts that the evaluation has added to, and how much."""
    before = counts_of(begin)
    after = counts_of(end)
    return {k: n - before.get(k, 0) for k, n in after.items() if n > before.get(k, 0)}


def _looks_back(metric: Any) -> bool:
    own = (word for name in metric.__dict__ for word in _words(name))
    return not (
        _LONG.isdisjoint(_words(type(metric).__name__)) and _SHARES.isdisjoint(own)
    )


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
