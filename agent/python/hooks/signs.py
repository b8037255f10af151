"""What shows at steps that something is wrong, looked at by the agent itself.

Each sign is a scalar of its optimizer with the name of a fact
(invariants/facts/observed_facts.cc): 1 where it is so, 0 where it could have been.

Many read gradients, of all that is known. That is safe while one thread trains (see
thread_claim.py): once a second one does, nobody looks any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck import transforms
from _traincheck.hyper_parameters import epsilon_vanishes, has_empty_group
from _traincheck.sorted_samples import NAME as SORTED_BATCHES
from _traincheck.thread_claim import ThreadClaim

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from traincheck_core import Scalars

    from _traincheck.watch import Watch


class Signs:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._claim = ThreadClaim()

    def alone(self) -> bool:
        """Is this the only thread that has trained?"""
        return self._claim.is_mine()

    def backward_begins(self) -> None:
        """Called before every outermost one."""
        self._claim.claim()
        self._watch.old_gradients.backward_begins()
        self._watch.foreign_gradients.backward_begins()
        self._watch.evaluations.backward_begins()
        self._watch.first_batches.backward_begins()
        self._watch.input_scales.backward_begins()
        in_order = self._watch.sorted_samples.backward_begins()
        if in_order is not None:
            core = self._watch.core
            core.record_scalar(0, core.POINT_BACKWARD_END, 0, SORTED_BATCHES, in_order)

    def backward_ended(self) -> None:
        if self.alone():
            self._watch.discarded_backwards.backward_ended()
            self._watch.leftover_gradients.backward_ended()
            self._watch.foreign_gradients.backward_ended()
            self._watch.masked_rows.backward_ended()

    def forward_begins(self) -> None:
        """Called at outermost forwards that train."""
        if transforms.running():
            self._watch.sight.limited_by("transforms")
            return
        if not self._claim.claim():
            return
        watch = self._watch
        watch.hidden_parts.forward_begins()
        watch.half_precision.forward_begins()
        watch.autocast_casts.forward_begins()
        watch.repeated_draws.forward_begins()

    def made(self, optimizer: torch.optim.Optimizer) -> None:
        self._watch.discarded_backwards.made(optimizer)
        self._watch.remade_optimizers.made(optimizer)
        self._watch.old_gradients.made(optimizer)
        self._watch.foreign_gradients.made(optimizer)
        self._watch.masked_rows.made(optimizer)
        self._watch.schedules.made(optimizer)
        self._watch.hidden_parts.optimizer_made()

    def clears(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before its gradients are cleared, outside of its step."""
        self._watch.loss_graphs.gradients_cleared()
        self._watch.discarded_backwards.clears(optimizer)
        self._watch.leftover_gradients.cleared()

    def module_clears(self, module: torch.nn.Module) -> None:
        self._watch.loss_graphs.gradients_cleared()
        self._watch.discarded_backwards.module_clears(module)
        self._watch.leftover_gradients.cleared()

    def steps(self, optimizer: torch.optim.Optimizer) -> Scalars:
        """What is said as its step begins."""
        if not self._claim.claim():
            self._watch.sight.limited_by("threads")
            return {}
        self._watch.values.poll()
        self._watch.rounded_steps.begins(optimizer)
        self._watch.old_gradients.begins(optimizer)
        self._watch.shared_samples.optimizer_steps()
        scalars = self._watch.hidden_parts.optimizer_steps()
        settings = self._watch.layer_settings.optimizer_steps(optimizer)
        scalars.update({(name, 0): value for name, value in settings.items()})
        scalars.update({(n, 0): v for n, v in self._of(optimizer) if v is not None})
        return scalars

    def _of(
        self, optimizer: torch.optim.Optimizer
    ) -> Iterator[tuple[str, float | None]]:
        watch = self._watch
        yield "opt.averages_without_statistics", watch.averages.optimizer_steps()
        yield "opt.average_rounded_away", watch.rounded_averages.optimizer_steps()
        yield "opt.stale_casts", watch.autocast_casts.optimizer_steps(optimizer)
        yield "opt.clips_nothing", watch.clipped.optimizer_steps()
        yield "opt.epsilon_vanishes", epsilon_vanishes(optimizer)
        yield "opt.has_empty_group", has_empty_group(optimizer)
        yield "opt.discards_backwards", watch.discarded_backwards.steps(optimizer)
        yield "opt.frozen_norm_moves", watch.frozen_norms.optimizer_steps(optimizer)
        yield "opt.follower_apart", watch.followers.optimizer_steps()
        yield "opt.follower_leads", watch.followers.leads()
        yield "opt.float16_unscaled", watch.half_precision.optimizer_steps()
        yield "opt.loaded_state_lost", watch.loaded_states.optimizer_steps(optimizer)
        yield "opt.loss_not_finite", watch.loss_graphs.optimizer_steps()
        yield "opt.loader_drops_all", watch.empty_passes.optimizer_steps()
        yield "opt.losses_are_zero", watch.loss_graphs.losses_are_zero()
        yield "opt.sums_means", watch.loss_graphs.sums_means()
        yield "opt.made_anew", watch.remade_optimizers.steps(optimizer)
        yield "opt.units_alike", watch.symmetric_weights.optimizer_steps(optimizer)
        yield "opt.resumes_without_state", watch.stateless_resumes.optimizer_steps()
        yield "opt.samples_without_gradient", watch.blind_samples.optimizer_steps()
        yield "opt.repeats_draws", watch.repeated_draws.optimizer_steps()
        yield "opt.needs_no_gradients", watch.old_gradients.needs_none(optimizer)
        yield "opt.leftover_gradients", watch.leftover_gradients.steps(id(optimizer))
        yield "opt.foreign_gradients", watch.foreign_gradients.steps(optimizer)
        yield "opt.moves_masked_rows", watch.masked_rows.steps(optimizer)
        yield "opt.scale_begins_anew", watch.resumed_scales.optimizer_steps()
        yield "opt.state_by_position", watch.positions.optimizer_steps(optimizer)
        yield "opt.teacher_drops", watch.teachers.optimizer_steps()
        yield "opt.layer_gets_zeros", watch.zero_gradients.optimizer_steps(optimizer)

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """What is said when its step has ended."""
        if not self.alone():
            return
        watch, core = self._watch, self._watch.core
        watch.loss_graphs.gradients_cleared()  # used, and those of a closure, too
        watch.discarded_backwards.stepped(optimizer)
        watch.remade_optimizers.stepped(optimizer)
        found = {
            "opt.rounded_away": watch.rounded_steps.ended(optimizer),
            "opt.gradients_are_old": watch.old_gradients.ended(optimizer),
            "opt.moments_forget": watch.forgetful_moments.stepped(optimizer),
        }
        for name, value in found.items():
            if value is not None:
                number = watch.holds.ensure(optimizer).number
                core.record_scalar(number, core.POINT_POST_STEP, 0, name, value)
