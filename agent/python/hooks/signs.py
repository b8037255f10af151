"""What shows at steps that something is wrong, looked at by the agent itself.

Each sign is a scalar of its optimizer with the name of a fact
(invariants/facts/observed_facts.cc): 1 where it is so, 0 where it could have been.

Many read gradients, of all that is known. That is safe while one thread trains (see
thread_claim.py): once a second one does, nobody looks any more.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

import torch

from _traincheck import transforms
from _traincheck.accumulation import DIVIDES_BY_MORE
from _traincheck.accumulation import SUMS as SUMS_MEANS
from _traincheck.awake import NEW_DATA
from _traincheck.blind_forwards import NAME as BLIND_FORWARD
from _traincheck.blind_samples import NAME as BLIND_SAMPLES
from _traincheck.carried_metrics import NAME as METRIC_GOES_ON
from _traincheck.carried_states import NAME as CARRIES_STATE
from _traincheck.clipping import NAME as CLIPS_NOTHING
from _traincheck.discarded_backwards import CLEARS_FIRST
from _traincheck.discarded_backwards import NAME as DISCARDS
from _traincheck.filled_rows import NAME as FILLED_ROWS
from _traincheck.foreign_gradients import NAME as FOREIGN
from _traincheck.frozen_parts import NAME as FROZEN_APART
from _traincheck.forgotten_bests import NAME as BEST_FORGOTTEN
from _traincheck.frozen_zeros import NAME as FROZEN_ZEROS
from _traincheck.group_options import GroupOptions
from _traincheck.holds import first_trained
from _traincheck.hyper_parameters import epsilon_vanishes, has_empty_group
from _traincheck.identity_map import WeakIdentityMap
from _traincheck.averages_in_place import NAME as AVERAGE_IS_MODEL
from _traincheck.kept_averages import NAME as AVERAGE_LEFT_IN
from _traincheck.last_losses import NAME as LAST_ONLY
from _traincheck.kept_bests import NAME as KEEPS_WORST
from _traincheck.kept_bests import SITE as KEEPS_WORST_AT
from _traincheck.kept_objects import NAME as KEEPS_ONE
from _traincheck.local_backwards import NAME as LAST_IS_LOCAL
from _traincheck.looks import looks_at, looks_at_two
from _traincheck.masked_rows import NAME as MASKED
from _traincheck.moved_replicas import NAME as REPLICAS_MOVED
from _traincheck.old_gradients import REPLACED
from _traincheck.old_gradients import is_of_torch
from _traincheck.patience_counters import NAME as IMPATIENT
from _traincheck.past_wrappers import NAME as PAST_WRAPPER
from _traincheck.rank_draws import NAME as RANKS_ALIKE
from _traincheck.remade_optimizers import NAME as MADE_ANEW
from _traincheck.repeated_averages import NAME as AVERAGES_EACH
from _traincheck.repeated_clips import NAME as CLIPS_EACH
from _traincheck.rounded_steps import ALL_OF_ONE
from _traincheck.rounded_steps import NAME as ROUNDED
from _traincheck.scaler_steps import NAME as BESIDES_SCALER
from _traincheck.shared_bests import NAME as BEST_IS_SHARED
from _traincheck.shared_bests import SITE as BEST_IS_SHARED_AT
from _traincheck.sorted_samples import NAME as SORTED_BATCHES
from _traincheck.stale_statistics import NAME as KEEPS_STATISTICS
from _traincheck.standing_averages import NAME as STANDS_STILL
from _traincheck.standing_counters import NAME as COUNTER_STANDS
from _traincheck.standing_bests import NAME as BEST_STAYS
from _traincheck.stateless_resumes import LEAVES as LEAVES_STATE
from _traincheck.stateless_resumes import NAME as NO_STATE
from _traincheck.still_copies import NAME as STILL_COPY
from _traincheck.symmetric_weights import NAME as UNITS_ALIKE
from _traincheck.thread_claim import ThreadClaim
from _traincheck.ungathered_shares import NAME as EVALUATES_A_SHARE
from _traincheck.unstepped_states import NAME as SAVES_UNSTEPPED
from _traincheck.vanishing_rates import NAME as RATE_VANISHES
from _traincheck.wrapped_apart import NAME as WRAPPED_APART
from _traincheck.zero_gradients import NAME as GETS_ZEROS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from traincheck_core import Scalars

    from _traincheck.watch import Watch

    _Ask = Callable[[torch.optim.Optimizer], float | None]

_NEEDS_NONE = "opt.needs_no_gradients"

# What is known of backwards, and forwards, that were seen.
_OF_BACKWARDS = (
    DISCARDS,
    "opt.leftover_gradients",
    "opt.loss_not_finite",
    "opt.losses_are_zero",
    "opt.repeats_draws",
    BESIDES_SCALER,
    CLEARS_FIRST,
    LAST_ONLY,
    DIVIDES_BY_MORE,
    FOREIGN,
    MASKED,
    PAST_WRAPPER,
    SUMS_MEANS,
)


class Signs:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._claim = ThreadClaim()
        # Steps of each optimizer that have begun.
        self._steps: WeakIdentityMap[torch.optim.Optimizer, int] = WeakIdentityMap()
        self._sleepers = _sleepers(watch)
        self._group_options = GroupOptions(watch.models)
        # Has a backward run in a CUDA graph, and none outside of it since?
        self._is_unseen = False

    def alone(self) -> bool:
        """Is this the only thread that has trained?"""
        return self._claim.thread == get_ident()

    def backward_begins(self, makes_graph: bool) -> None:
        """Called before every outermost one. makes_graph: of the gradients."""
        self._claim.claim()
        self._is_unseen = False
        self._watch.untrained_passes.trains()
        self._watch.old_gradients.backward_begins(makes_graph)
        self._watch.last_losses.backward_begins()
        self._watch.local_backwards.backward_begins()
        self._watch.past_wrappers.backward_begins()
        self._watch.repeated_clips.backward_begins()
        self._watch.repeated_averages.backward_begins()
        self._watch.scaler_steps.backward_begins()
        if FOREIGN in self._watch.awake:
            self._watch.foreign_gradients.backward_begins()
        self._data_used()

    def replayed(self, backwards: int, optimizers: list[torch.optim.Optimizer]) -> None:
        """A CUDA graph was: so many backwards, and the steps of these optimizers."""
        watch = self._watch
        watch.untrained_passes.trains()
        watch.old_gradients.replayed(backwards)
        watch.discarded_backwards.replayed()
        watch.foreign_gradients.replayed()
        watch.leftover_gradients.replayed()
        watch.last_losses.replayed()
        watch.local_backwards.replayed()
        watch.past_wrappers.replayed()
        watch.repeated_clips.replayed()
        watch.repeated_averages.replayed()
        watch.scaler_steps.replayed()
        watch.masked_rows.replayed()
        watch.remade_optimizers.replayed()
        watch.stray_terms.replayed()
        for optimizer in optimizers:
            watch.schedules.replayed(optimizer)
            watch.vanishing_rates.replayed(optimizer)
            watch.shared_samples.optimizer_steps()
        if backwards:
            self._is_unseen = True
            self._data_used()

    def _data_used(self) -> None:
        """Called at every backward; the first since a pass over data began counts."""
        if NEW_DATA not in self._watch.awake:
            return
        self._watch.awake.discard(NEW_DATA)
        self._watch.evaluations.backward_begins()
        self._watch.still_copies.backward_begins()
        self._watch.first_batches.backward_begins()
        self._watch.seeded_orders.backward_begins()
        self._watch.input_scales.backward_begins()
        in_order = self._watch.sorted_samples.backward_begins()
        if in_order is not None:
            core = self._watch.core
            core.record_scalar(0, core.POINT_BACKWARD_END, 0, SORTED_BATCHES, in_order)

    def backward_ended(self) -> None:
        if self.alone():
            self._watch.discarded_backwards.backward_ended()
            self._watch.leftover_gradients.backward_ended()
            self._watch.past_wrappers.backward_ended()
            for optimizer in self._watch.old_gradients.replaced_at_once():
                self._say_replaced(optimizer)
            if FOREIGN in self._watch.awake:
                is_meant = self._watch.stray_terms.is_meant
                rests = self._watch.loss_graphs.rests()
                self._watch.foreign_gradients.backward_ended(is_meant, rests)
            if MASKED in self._watch.awake:
                self._watch.masked_rows.backward_ended()

    def _say_replaced(self, optimizer: torch.optim.Optimizer) -> None:
        core, number = self._watch.core, self._watch.holds.ensure(optimizer).number
        core.record_scalar(number, core.POINT_PRE_STEP, 0, REPLACED, 1.0)

    def forward_begins(self) -> None:
        """Called at outermost forwards that train."""
        self._watch.untrained_passes.trains()
        if transforms.running():
            self._watch.sight.limited_by("transforms")
            return
        if not self._claim.claim():
            return
        watch = self._watch
        watch.hidden_parts.forward_begins()
        if torch._C._is_any_autocast_enabled():
            watch.half_precision.forward_begins()
            watch.autocast_casts.forward_begins()
        watch.repeated_draws.forward_begins()
        watch.rank_draws.forward_begins()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._watch.loss_graphs.made(optimizer)
        self._watch.discarded_backwards.made(optimizer)
        self._watch.remade_optimizers.made(optimizer)
        self._watch.unstepped_states.made(optimizer)
        self._watch.old_gradients.made(optimizer)
        self._watch.foreign_gradients.made(optimizer)
        self._watch.masked_rows.made(optimizer)
        self._watch.schedules.made(optimizer)
        self._watch.hidden_parts.optimizer_made()
        self._watch.seeded_orders.optimizer_made()
        self._watch.kept_averages.optimizer_made()
        self._watch.carried_metrics.optimizer_made()
        self._watch.teachers.optimizer_made()

    def clears(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before its gradients are cleared, outside of its step."""
        self._watch.loss_graphs.gradients_cleared()
        self._watch.discarded_backwards.clears(optimizer)
        self._watch.stray_terms.clears(optimizer)
        self._watch.old_gradients.clears(optimizer)
        self._watch.leftover_gradients.cleared()

    def module_clears(self, module: torch.nn.Module) -> None:
        self._watch.loss_graphs.gradients_cleared()
        self._watch.discarded_backwards.module_clears(module)
        optimizers = self._watch.holds.optimizers()
        self._watch.stray_terms.module_clears(module, optimizers)
        self._watch.leftover_gradients.cleared()

    def steps(self, optimizer: torch.optim.Optimizer) -> Scalars:
        """What is said as its step begins."""
        self._watch.untrained_passes.trains()
        if not self._claim.claim():
            self._watch.sight.limited_by("threads")
            return {}
        self._watch.values.poll()
        number = self._count(optimizer)
        looks = looks_at(number)
        if looks or ROUNDED in self._watch.awake:
            self._watch.rounded_steps.begins(optimizer, looks)
        replaced = self._watch.old_gradients.are_replaced(optimizer)
        self._watch.old_gradients.begins(optimizer)
        self._watch.shared_samples.optimizer_steps()
        self._watch.lineages.steps(optimizer)
        self._watch.exchanged_folds.optimizer_steps()
        self._watch.stray_terms.steps(optimizer)
        scalars = self._watch.hidden_parts.optimizer_steps()
        if replaced is not None:
            scalars[REPLACED, 0] = float(replaced)
        if looks:
            scalars.update(
                {(n, 0): v for n, v in self._at_a_look(optimizer) if v is not None}
            )
        scalars.update({(n, 0): v for n, v in self._of(optimizer) if v is not None})
        if self._watch.awake:
            awake = self._of_awake(optimizer)
            scalars.update({(n, 0): v for n, v in awake if v is not None})
        if self._is_unseen:
            for name in _OF_BACKWARDS:
                scalars.pop((name, 0), None)
        scalars.update(self._watch.step_lines.of(optimizer, scalars))
        # Two steps in a row are compared.
        looks = looks_at_two(number)
        if looks or MASKED in self._watch.awake:
            self._watch.masked_rows.expects(optimizer, looks)
        return scalars

    def _count(self, optimizer: torch.optim.Optimizer) -> int:
        """Its steps before this one."""
        number = self._steps.get(optimizer)
        if number is None:
            number = 0
            self._watch.awake.update((FOREIGN, FROZEN_ZEROS, GETS_ZEROS, UNITS_ALIKE))
            self._watch.kept_averages.look(self._watch)
            self._watch.carried_metrics.look(self._watch)
            self._watch.kept_objects.look(self._watch)
            if not is_of_torch(optimizer):
                self._watch.awake.add(_NEEDS_NONE)
        self._steps.set(optimizer, number + 1)
        return number

    def _at_a_look(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, float | None]]:
        """Of those that look at some steps only: looks.py."""
        yield from self._group_options.look(optimizer)
        yield from self._watch.layer_settings.look().items()
        yield "opt.frozen_norm_moves", self._watch.frozen_norms.look()
        yield from self._watch.source_looks.look()

    def _of(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, float | None]]:
        watch, first = self._watch, first_trained(optimizer)
        yield "opt.epsilon_vanishes", epsilon_vanishes(optimizer)
        yield "opt.has_empty_group", has_empty_group(optimizer)
        yield DISCARDS, watch.discarded_backwards.steps(optimizer, first)
        yield LAST_ONLY, watch.last_losses.optimizer_steps(optimizer)
        yield CLEARS_FIRST, watch.discarded_backwards.clears_first(optimizer)
        yield "opt.loss_not_finite", watch.loss_graphs.optimizer_steps()
        rests = watch.foreign_gradients.has_nothing_to_learn(optimizer)
        zero = 1.0 if rests else watch.loss_graphs.losses_are_zero()
        yield "opt.losses_are_zero", zero
        yield SUMS_MEANS, watch.loss_graphs.accumulation.sums_means()
        yield RATE_VANISHES, watch.vanishing_rates.steps(optimizer)
        yield DIVIDES_BY_MORE, watch.loss_graphs.accumulation.divides_by_more()
        yield "opt.repeats_draws", watch.repeated_draws.optimizer_steps()
        yield RANKS_ALIKE, watch.rank_draws.optimizer_steps()
        yield LAST_IS_LOCAL, watch.local_backwards.steps(optimizer)
        yield PAST_WRAPPER, watch.past_wrappers.steps(optimizer)
        yield REPLICAS_MOVED, watch.moved_replicas.steps(optimizer)
        yield WRAPPED_APART, watch.wrapped_apart.steps(optimizer)
        yield BESIDES_SCALER, watch.scaler_steps.steps(optimizer)
        yield BLIND_FORWARD, watch.blind_forwards.steps(optimizer)
        yield AVERAGE_LEFT_IN, watch.kept_averages.steps(optimizer)
        yield AVERAGE_IS_MODEL, watch.averages_in_place.optimizer_steps()
        yield "opt.leftover_gradients", watch.leftover_gradients.steps(id(optimizer))

    def _of_awake(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, float | None]]:
        awake = self._watch.awake
        for name, ask in self._sleepers.items():
            if name in awake:
                yield name, ask(optimizer)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """What is said when its step has ended."""
        if not self.alone():
            return
        watch, core = self._watch, self._watch.core
        watch.standing_averages.trains()
        watch.loss_graphs.gradients_cleared()  # used, and those of a closure, too
        first = first_trained(optimizer)
        watch.discarded_backwards.stepped(optimizer, first)
        watch.remade_optimizers.stepped(optimizer, first)
        watch.repeated_clips.stepped()
        watch.lineages.stepped(optimizer)
        watch.repeated_averages.stepped()
        watch.ungathered_shares.stepped()
        rounded = ROUNDED in watch.awake
        found = (
            (ROUNDED, watch.rounded_steps.ended(optimizer) if rounded else None),
            (ALL_OF_ONE, watch.rounded_steps.one_ended(optimizer) if rounded else None),
            ("opt.gradients_are_old", watch.old_gradients.ended(optimizer)),
            ("opt.moments_forget", watch.forgetful_moments.stepped(optimizer)),
            (COUNTER_STANDS, watch.standing_counters.stepped(optimizer)),
        )
        for name, value in found:
            if value is not None:
                number = watch.holds.ensure(optimizer).number
                core.record_scalar(number, core.POINT_POST_STEP, 0, name, value)


def _sleepers(watch: Watch) -> dict[str, _Ask]:
    """Those that sleep until something wakes them (awake.py), by their scalars."""
    return {
        "opt.averages_without_statistics": lambda o: watch.averages.optimizer_steps(),
        "opt.average_rounded_away": lambda o: watch.rounded_averages.optimizer_steps(),
        "opt.stale_casts": lambda o: watch.autocast_casts.optimizer_steps(o),
        CLIPS_NOTHING: lambda o: watch.clipped.optimizer_steps(o),
        AVERAGES_EACH: lambda o: watch.repeated_averages.optimizer_steps(),
        CLIPS_EACH: lambda o: watch.repeated_clips.steps(o),
        STANDS_STILL: lambda o: watch.standing_averages.optimizer_steps(),
        f"{STANDS_STILL}.site": lambda o: watch.standing_averages.site(),
        "opt.follower_apart": lambda o: watch.followers.optimizer_steps(),
        "opt.follower_flees": lambda o: watch.followers.flees(),
        "opt.follower_leads": lambda o: watch.followers.leads(),
        "opt.float16_unscaled": lambda o: watch.half_precision.optimizer_steps(),
        "opt.loaded_state_lost": lambda o: watch.loaded_states.optimizer_steps(o),
        "opt.loader_drops_all": lambda o: watch.empty_passes.optimizer_steps(),
        MADE_ANEW: lambda o: watch.remade_optimizers.steps(o, first_trained(o)),
        UNITS_ALIKE: lambda o: watch.symmetric_weights.optimizer_steps(o),
        SAVES_UNSTEPPED: lambda o: watch.unstepped_states.steps(o),
        NO_STATE: lambda o: watch.stateless_resumes.optimizer_steps(),
        LEAVES_STATE: lambda o: watch.stateless_resumes.leaves_state(o),
        MASKED: lambda o: watch.masked_rows.steps(o),
        _NEEDS_NONE: lambda o: watch.old_gradients.needs_none(o),
        FROZEN_APART: lambda o: watch.frozen_parts.optimizer_steps(),
        FOREIGN: lambda o: watch.foreign_gradients.steps(o),
        "opt.scale_begins_anew": lambda o: watch.resumed_scales.optimizer_steps(),
        "opt.state_by_position": lambda o: watch.positions.optimizer_steps(o),
        "opt.teacher_drops": lambda o: watch.teachers.optimizer_steps(),
        FROZEN_ZEROS: lambda o: watch.frozen_zeros.optimizer_steps(o),
        GETS_ZEROS: lambda o: watch.zero_gradients.optimizer_steps(o),
        KEEPS_STATISTICS: lambda o: watch.stale_statistics.optimizer_steps(),
        STILL_COPY: lambda o: watch.still_copies.optimizer_steps(),
        BLIND_SAMPLES: lambda o: watch.blind_samples.optimizer_steps(),
        BEST_FORGOTTEN: lambda o: watch.forgotten_bests.optimizer_steps(),
        BEST_STAYS: lambda o: watch.kept_bests.standing.optimizer_steps(),
        IMPATIENT: lambda o: watch.kept_bests.patience.optimizer_steps(),
        KEEPS_WORST: lambda o: watch.kept_bests.optimizer_steps(),
        KEEPS_WORST_AT: lambda o: watch.kept_bests.site(),
        BEST_IS_SHARED: lambda o: watch.shared_bests.optimizer_steps(o),
        BEST_IS_SHARED_AT: lambda o: watch.shared_bests.site(),
        CARRIES_STATE: lambda o: watch.carried_states.optimizer_steps(),
        FILLED_ROWS: lambda o: watch.filled_rows.optimizer_steps(),
        EVALUATES_A_SHARE: lambda o: watch.ungathered_shares.optimizer_steps(),
        KEEPS_ONE: lambda o: watch.kept_objects.optimizer_steps(),
        METRIC_GOES_ON: lambda o: watch.carried_metrics.optimizer_steps(),
    }
