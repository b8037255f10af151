"""Learning rate schedulers: last_epoch, the rates that they set, and how they go
with the steps of their optimizer."""

from __future__ import annotations

import collections
import itertools
import sys
from typing import TYPE_CHECKING

import torch

from _traincheck import counted_lengths, naming
from _traincheck.cosine_waves import CosineWave
from _traincheck.early_ends import NAME as ENDS_EARLY
from _traincheck.early_ends import EarlyEnd
from _traincheck.early_falls import NAME as FALLS_EARLY
from _traincheck.early_falls import EarlyFall, last_milestone
from _traincheck.findings import Findings
from _traincheck.holds import parameters_of
from _traincheck.hyper_parameters import number_of, rates_of
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.late_steps import waits_for_a_counter
from _traincheck.lengths import batches_of
from _traincheck.merged_rates import MergedRates
from _traincheck.metric_direction import NAME as AGAINST_METRIC
from _traincheck.metric_direction import MetricDirection
from _traincheck.observing import observe
from _traincheck.outrun_schedules import NAME as OUTRUNS
from _traincheck.outrun_schedules import OutrunSchedules
from _traincheck.plateau_metrics import NAME as METRICS_APART
from _traincheck.plateau_metrics import PlateauMetrics
from _traincheck.schedule_lines import EARLY, ScheduleLines
from _traincheck.scheduler_settings import are_equal
from _traincheck.slow_warm_ups import NAME as SLOW_WARM_UP
from _traincheck.slow_warm_ups import WarmUp
from _traincheck.squared_rates import NAME as RATE_AS_FACTOR
from _traincheck.squared_rates import SquaredRate
from _traincheck.undone_rates import NAME as UNDONE
from _traincheck.undone_rates import UndoneRates
from _traincheck.wrapping import restore_attributes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch.utils.data import DataLoader
    from traincheck_core import Args, Core, Kwargs, Scalars

    from _traincheck.resumed_schedules import ResumedSchedules
    from _traincheck.watch import Watch

_PLATEAU = torch.optim.lr_scheduler.ReduceLROnPlateau
_LATE = (_PLATEAU, torch.optim.swa_utils.SWALR)
_COSINE = torch.optim.lr_scheduler.CosineAnnealingLR
_MILESTONES = torch.optim.lr_scheduler.MultiStepLR
_ONE_CYCLE = torch.optim.lr_scheduler.OneCycleLR
# Their states copy the attributes of the methods that they are given.
_OF_FUNCTIONS = (
    torch.optim.lr_scheduler.LambdaLR,
    torch.optim.lr_scheduler.MultiplicativeLR,
)
_UNUSED_PASSES = 2
_SETTLED = 64  # steps of an optimizer after which nobody joins
_LONG_CYCLE = 1000  # steps: nobody trains for as many epochs
_RATE_RESET = "schedule.rate_reset"
_LAST_EPOCH_APART = "schedule.last_epoch_apart"


class _Schedule:
    """One scheduler, beside the steps of its optimizer."""

    def __init__(self) -> None:
        self.epoch: float | None = None  # at its optimizer's last step
        self.steps = 0  # of all optimizers, when it was stepped last
        # Times in a row that it was stepped while others stepped instead of its own.
        self.idle = 0
        self.own_steps = 0  # of its optimizer, when it was stepped last
        # Steps of each optimizer (by its id) at its own optimizer's last step.
        self.counts: dict[int, int] = {}
        self.calls = 0  # of step, the constructor's own among them
        self.early = False  # was it stepped before its optimizer's first step?
        # Passes over loaders (by their numbers) that have ended before its first step.
        self.passes: collections.Counter[int] = collections.Counter()
        self.waits = False  # has its optimizer stepped twice without it?
        # Does a call of its step wait for a counter? None: nobody has looked.
        self.begins_late: bool | None = None
        # Rates that its optimizer had loaded, that it set; was it given last_epoch?
        self.resumed: list[float] | None = None
        self.made: list[float] | None = None
        self.goes_on = False
        # Does it wait for its metric in the wrong direction? None: not known.
        self.against: bool | None = None
        self.direction = MetricDirection()
        self.squared = SquaredRate()
        self.warm_up = WarmUp()
        self.length = counted_lengths.CountedLength()
        self.end = EarlyEnd()
        self.fall = EarlyFall(self.end)
        self.wave = CosineWave()


class Schedules:
    def __init__(
        self,
        core: Core,
        resumed: ResumedSchedules,
        averages: Callable[[Any], bool],
    ) -> None:
        """averages: see plateau_metrics.py."""
        self._resumed = resumed
        self.plateaus = PlateauMetrics(core, averages)
        self._outrun = OutrunSchedules()
        self.undone = UndoneRates()
        self.lines = ScheduleLines(core)
        self._all: WeakIdentityMap[Any, _Schedule] = WeakIdentityMap()
        self._counts: WeakIdentityMap[Any, int] = WeakIdentityMap()  # of optimizers
        self._loaded: WeakIdentityMap[Any, list[float]] = WeakIdentityMap()
        self._steps = 0
        self._merged = MergedRates()
        self._batches: int | None = None  # of the pass that trains

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._merged.made(optimizer)

    def pass_begins(self, loader: DataLoader[Any]) -> None:
        if torch.is_grad_enabled():
            self._batches = batches_of(loader)
            for schedule in self._all.values():
                schedule.end.pass_begins(self._batches)

    def pass_ended(self, loader: int) -> None:
        """All of its batches have been read, and it was trained with."""
        for scheduler in self._all.keys():
            schedule = self._all.get(scheduler)
            if schedule is None:
                continue
            schedule.end.pass_ended(schedule.calls - 1, _end_of(scheduler))
            if schedule.calls > 1:
                continue
            # An optimizer may join late (a discriminator after a warm-up).
            if self._counts.get(self._optimizer_of(scheduler)):
                schedule.passes[loader] += 1

    def evaluates(self) -> None:
        """Called at forwards without gradients: the first is where a pass has ended, if
        the batches come from no loader."""
        for scheduler in self._all.keys():
            schedule = self._all.get(scheduler)
            if schedule is not None and schedule.end.waits():
                schedule.end.pass_ended(schedule.calls - 1, _end_of(scheduler))

    def loads(self, taker: Any, state: Any) -> None:
        """It is about to take over a state, if it is an optimizer."""
        if isinstance(taker, torch.optim.Optimizer) and isinstance(state, dict):
            self._loaded.set(taker, rates_of(state.get("param_groups")))

    def stepped(self, scheduler: Any) -> None:
        schedule = self._all.get(scheduler)
        if schedule is None:
            schedule = _Schedule()
            schedule.resumed = self._loaded.get(self._optimizer_of(scheduler))
            self._all.set(scheduler, schedule)
        schedule.calls += 1
        self.lines.stepped(scheduler)
        schedule.squared.stepped(scheduler, schedule.calls)
        own = self._counts.get(self._optimizer_of(scheduler)) or 0
        schedule.warm_up.scheduler_steps(scheduler, schedule.calls, own)
        schedule.length.scheduler_steps(schedule.calls, own, schedule.end.passes)
        rests = own == schedule.own_steps and self._steps != schedule.steps
        if own and not (rests and self._is_replaced(self._optimizer_of(scheduler))):
            schedule.idle = 0
        elif self._steps != schedule.steps:
            schedule.idle += 1
        schedule.steps, schedule.own_steps = self._steps, own

    def waits_for(self, scheduler: Any, metric: Any) -> None:
        """It is given a metric."""
        schedule = self._all.get(scheduler)
        if schedule is not None:
            against = schedule.direction.is_against(scheduler, metric)
            schedule.against = schedule.against if against is None else against
            self.plateaus.stepped(scheduler, metric)

    def begun(self, scheduler: Any) -> None:
        """It has made the step that sets its first rate; SequentialLR has one of its
        schedulers make it again."""
        schedule = self._all.get(scheduler)
        if schedule is not None:
            schedule.calls = 1
            schedule.goes_on = (_epoch_of(scheduler) or 0) > 0
            self.lines.begun(scheduler)

    def _optimizer_of(self, scheduler: Any) -> Any:
        """The one that steps, of those that have: a scheduler may know a wrapper of it
        (accelerate, DeepSpeed), which has the same groups."""
        given = getattr(scheduler, "optimizer", None)
        for optimizer in self._counts.keys():
            if _are_one(given, optimizer):
                return optimizer
        return given

    def _is_replaced(self, optimizer: Any) -> bool:
        """Does another one that has stepped hold all of its parameters?"""
        mine = {id(one) for one in parameters_of(optimizer)}
        return any(
            mine.issubset(map(id, parameters_of(other)))
            for other in self._counts.keys()
            if self._counts.get(other) and not _are_one(other, optimizer)
        )

    def skips(self, optimizer: torch.optim.Optimizer) -> None:
        """A GradScaler leaves a step out: that counts as one here."""
        self._counts.set(optimizer, self._counts.get(optimizer) or 0)

    def replayed(self, optimizer: torch.optim.Optimizer) -> None:
        """It made a step in a graph."""
        self._steps += 1
        self._outrun.replayed(optimizer)
        self._counts.set(optimizer, (self._counts.get(optimizer) or 0) + 1)

    def optimizer_steps(self, optimizer: torch.optim.Optimizer) -> Scalars:
        """Called when one begins. {(name, 0): value}; empty without schedulers."""
        self._steps += 1
        count = self._counts.get(optimizer)
        first = count is None
        self._counts.set(optimizer, (count or 0) + 1)
        self._loaded.discard(optimizer)
        if len(self._all) == 0 and not self._merged.looks_at(optimizer):
            self._resumed.optimizer_steps(optimizer, [])
            return {}
        found = Findings()
        own: list[Any] = []
        unused: list[bool] = []
        in_one_cycle = False
        furthest: float | None = None  # that one of its schedulers has moved
        for scheduler, schedule in self._all.items():
            found.at = scheduler
            found.add("schedule_idle", schedule.idle)
            if _are_one(getattr(scheduler, "optimizer", None), optimizer):
                if first:
                    schedule.early = schedule.calls > 1
                own.append(scheduler)
                unused.append(_is_unused(scheduler, schedule))
                in_one_cycle = in_one_cycle or isinstance(scheduler, _ONE_CYCLE)
                moved = self._moved(scheduler, schedule)
                _look(scheduler, schedule, optimizer, moved, found)
                if isinstance(scheduler, _COSINE):
                    _look_at_end(scheduler, schedule, found)
                fallen = schedule.fall.look(scheduler, schedule.calls - 1, count or 0)
                found.add(FALLS_EARLY, fallen)
                found.add(METRICS_APART, self.plateaus.is_apart(scheduler))
                found.add(UNDONE, self.undone.of(scheduler.optimizer))
                if moved is not None:
                    furthest = max(moved, furthest or 0.0)
                if moved is not None and isinstance(scheduler, _ONE_CYCLE):
                    waits = self._cycle_waits(scheduler, schedule, moved)
                    found.add("schedule.cycle_waits", waits)
        # What follows is about no one of them: the last one made may have caused it.
        found.at = own[-1] if own else None
        if unused:
            found.add("schedule.unused", all(unused))
            found.add(OUTRUNS, self._outrun.steps(optimizer, furthest))
        found.add("schedule.merges_rates", self._merged.steps(optimizer, in_one_cycle))
        if (count or 0) < _SETTLED:
            found.add("schedule.all_on_one", self._are_all_on_one(optimizer, own))
        for name, anew in self._resumed.optimizer_steps(optimizer, own).items():
            found.add(name, anew)
        scalars = {(name, 0): value for name, value in found.items()}
        return scalars | self.lines.of(found)

    def _are_all_on_one(
        self, optimizer: torch.optim.Optimizer, own: list[Any]
    ) -> bool | None:
        """Has it two schedulers of one kind, and another optimizer none? None: there
        are not two of both."""
        if len(self._all) < 2 or len(self._counts) < 2:
            return None
        everyone = list(self._all.keys())
        inner = {
            id(one) for each in everyone for one in getattr(each, "_schedulers", ())
        }
        stepped = [o for o in own if id(o) not in inner and self._has_stepped(o)]
        if not any(are_equal(*two) for two in itertools.combinations(stepped, 2)):
            return False
        given = [getattr(each, "optimizer", None) for each in everyone]
        others = (other for other in self._counts.keys() if other is not optimizer)
        return any(not any(_are_one(one, other) for one in given) for other in others)

    def _moved(self, scheduler: Any, schedule: _Schedule) -> float | None:
        """By how much since its optimizer's last step; None: not known."""
        counts = {id(one): count for one, count in self._counts.items()}
        steps = [count - schedule.counts.get(i, count) for i, count in counts.items()]
        schedule.counts = counts
        moved = _moved(scheduler, schedule)
        # It may count the steps of another one (the critic's, of which some are made
        # for one of the generator's).
        is_others = moved is not None and 1 < moved <= max(steps, default=0)
        return 1.0 if is_others else moved

    def _cycle_waits(
        self, scheduler: Any, schedule: _Schedule, moved: float
    ) -> bool | None:
        """None: it may have been laid out in epochs."""
        total = number_of(getattr(scheduler, "total_steps", None))
        epoch = schedule.epoch
        over = total is not None and epoch is not None and epoch >= total - 1
        waits = moved == 0 and not over
        if waits and total is not None and _may_be_epochs(total, self._batches):
            return None
        schedule.waits = schedule.waits or waits
        return schedule.waits

    def _has_stepped(self, scheduler: Any) -> bool:
        schedule = self._all.get(scheduler)
        return schedule is not None and schedule.calls > 1


def _are_one(given: Any, optimizer: torch.optim.Optimizer) -> bool:
    if given is optimizer:
        return True
    groups = getattr(given, "param_groups", None)
    return groups is not None and groups is optimizer.param_groups


def _look(
    scheduler: Any,
    schedule: _Schedule,
    optimizer: torch.optim.Optimizer,
    moved: float | None,
    found: Findings,
) -> None:
    found.add(EARLY, schedule.early)
    found.add(AGAINST_METRIC, schedule.against)
    found.add(RATE_AS_FACTOR, schedule.squared.is_so)
    found.add(SLOW_WARM_UP, schedule.warm_up.is_slow())
    found.add(counted_lengths.NAME, schedule.length.is_misread())
    found.add("schedule.rises_again", schedule.wave.look(scheduler))
    found.add("schedule_moved", moved)
    if schedule.resumed:
        name = _LAST_EPOCH_APART if schedule.goes_on else _RATE_RESET
        found.add(name, _resets(scheduler, schedule, optimizer))


def _may_be_epochs(total: float, batches: int | None) -> bool:
    """Is the length of a cycle not one of passes of so many batches? Some give it with
    one more or less."""
    if batches is None or batches < 2 or total > _LONG_CYCLE:
        return False
    return total < batches - 1 or int(total) % batches not in (0, 1, batches - 1)


def _is_unused(scheduler: Any, schedule: _Schedule) -> bool:
    """Has it not been stepped in two passes over one loader? Those that wait for a
    metric or for the end of the training may be stepped late."""
    if isinstance(scheduler, _LATE) or schedule.calls > 1:
        return False
    if max(schedule.passes.values(), default=0) < _UNUSED_PASSES:
        return False
    if schedule.begins_late is None:
        schedule.begins_late = waits_for_a_counter(scheduler)
    return not schedule.begins_late


def _end_of(scheduler: Any) -> float | None:
    """Where a cosine has its lowest rate (it has no end, and rises again), or the last
    milestone is."""
    if isinstance(scheduler, _MILESTONES):
        return last_milestone(scheduler)
    return number_of(getattr(scheduler, "T_max", None))


def _look_at_end(scheduler: Any, schedule: _Schedule, found: Findings) -> None:
    end, epoch = _end_of(scheduler), schedule.epoch
    if end is None or epoch is None:
        found.add("schedule.rises_again", False)
        return
    rises, early = schedule.end.look(epoch, schedule.calls - 1, end)
    found.add("schedule.rises_again", rises)
    found.add(ENDS_EARLY, early)


def _resets(
    scheduler: Any, schedule: _Schedule, optimizer: torch.optim.Optimizer
) -> bool | None:
    """Does a schedule that goes on begin with other rates than were loaded? None: not
    known yet. One that is given last_epoch may begin with the rates of one step later,
    where the state was saved before the scheduler's step."""
    loaded, now = schedule.resumed or [], rates_of(optimizer.param_groups)
    made, moved = schedule.made, schedule.calls > 1
    if made is None and schedule.goes_on and not moved and now != loaded:
        schedule.made = now
        return None
    if made is not None:
        if not moved:
            return None
        schedule.resumed = None
        return not _are_neighbours(loaded, made, now)
    schedule.resumed = None
    return (_epoch_of(scheduler) or 0) > 0 and not moved and now != loaded


def _are_neighbours(loaded: list[float], made: list[float], then: list[float]) -> bool:
    """Are the loaded rates about as far from those that follow as these from the
    next?"""
    if not len(loaded) == len(made) == len(then):
        return False
    return all(
        abs(before - now) <= 2 * abs(now - after) * (1 + 1e-6)
        for before, now, after in zip(loaded, made, then)
    )


def _epoch_of(scheduler: Any) -> float | None:
    return number_of(getattr(scheduler, "last_epoch", None))


def _moved(scheduler: Any, schedule: _Schedule) -> float | None:
    """By how much since the last step; None: not known."""
    epoch = _epoch_of(scheduler)
    before, schedule.epoch = schedule.epoch, epoch
    if epoch is None or before is None:
        return None
    return 1.0 if _is_of_all_ranks(epoch - before) else epoch - before


def _is_of_all_ranks(moved: float) -> bool:
    """accelerate's schedules count the batches of all ranks, with each step."""
    if moved < 2 or "accelerate.scheduler" not in sys.modules:
        return False
    known = torch.distributed.is_available() and torch.distributed.is_initialized()
    return known and bool(moved == torch.distributed.get_world_size())


def _observe_class(watch: Watch, cls: type[Any]) -> None:
    def steps(scheduler: Any, args: Args, kwargs: Kwargs) -> None:
        watch.schedules.undone.begins(scheduler)

    def stepped(scheduler: Any, args: Args, result: Any) -> None:
        watch.schedules.stepped(scheduler)
        watch.untrained_passes.scheduler_steps(scheduler)
        watch.schedules.undone.stepped(scheduler)
        watch.vanishing_rates.scheduler_steps(getattr(scheduler, "optimizer", None))
        if args and isinstance(scheduler, _PLATEAU):
            watch.schedules.waits_for(scheduler, args[0])
            metric = args[0]
            if type(metric) is torch.Tensor and not watch.values.is_here(metric):
                watch.sight.limited_by("device metrics")
        scalars = {}
        epoch = _epoch_of(scheduler)
        if epoch is not None:
            scalars[("last_epoch", 0)] = epoch
        for group, rate in enumerate(getattr(scheduler, "_last_lr", ())):
            rate = number_of(rate)
            if rate is not None:
                scalars[("last_lr", group)] = rate
        core = watch.core
        watch.scalars.write(scheduler, core.OBJECT_OTHER, core.POINT_POST_STEP, scalars)

    observe(watch, cls, "step", before=steps, after=stepped)

    def loads(scheduler: Any, args: Args, kwargs: Kwargs) -> None:
        watch.resumed_schedules.scheduler_loads(scheduler)

    observe(watch, cls, "load_state_dict", before=loads)


def install(watch: Watch) -> None:
    base = torch.optim.lr_scheduler.LRScheduler
    for cls in {base, *naming.subclasses(base)}:
        _observe_class(watch, cls)

    def constructed(scheduler: Any, args: Args, kwargs: Kwargs) -> None:
        for cls in type(scheduler).__mro__:
            if cls is base:
                break
            _observe_class(watch, cls)
        optimizer = args[0] if args else kwargs.get("optimizer")
        watch.resumed_schedules.scheduler_made(optimizer)
        made(scheduler, args, kwargs)

    def made(scheduler: Any, args: Args, kwargs: Kwargs) -> None:
        watch.schedules.lines.made(scheduler)

    # Before: it steps within.
    observe(watch, base, "__init__", before=constructed)
    observe(watch, _PLATEAU, "__init__", before=made)  # it does not call that of base

    def begun(scheduler: Any, args: Args, result: Any) -> None:
        watch.schedules.begun(scheduler)

    observe(watch, base, "_initial_step", after=begun)

    def gave_state(scheduler: Any, args: Args, state: dict[str, Any]) -> None:
        for attributes in state.get("lr_lambdas", ()):
            if isinstance(attributes, dict):
                restore_attributes(attributes)

    for cls in _OF_FUNCTIONS:
        observe(watch, cls, "state_dict", after=gave_state)
