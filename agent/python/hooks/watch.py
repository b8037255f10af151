"""What all hooks of a process share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _traincheck.autocast_casts import AutocastCasts
from _traincheck.averaged_gradients import AveragedGradients
from _traincheck.averages import Averages
from _traincheck.averages_in_place import AveragesInPlace
from _traincheck.balanced_draws import BalancedDraws
from _traincheck.blind_forwards import BlindForwards
from _traincheck.blind_samples import BlindSamples
from _traincheck.carried_metrics import CarriedMetrics
from _traincheck.carried_states import CarriedStates
from _traincheck.checkpoint_content import CheckpointContent
from _traincheck.class_tables import ClassTables
from _traincheck.clipping import Clipped
from _traincheck.clock import Clock
from _traincheck.control import Control
from _traincheck.control import Recorded
from _traincheck.cuda_graphs import CudaGraphs
from _traincheck.device_values import DeviceValues
from _traincheck.discarded_backwards import DiscardedBackwards
from _traincheck.dropped_samples import DroppedSamples
from _traincheck.empty_passes import EmptyPasses
from _traincheck.evaluations import Evaluations
from _traincheck.exchanged_folds import ExchangedFolds
from _traincheck.filled_rows import FilledRows
from _traincheck.first_batches import FirstBatches
from _traincheck.foreign_gradients import ForeignGradients
from _traincheck.forgotten_bests import ForgottenBests
from _traincheck.frozen_norms import FrozenNorms
from _traincheck.frozen_parts import FrozenParts
from _traincheck.frozen_zeros import FrozenZeros
from _traincheck.forgetful_moments import ForgetfulMoments
from _traincheck.followers import Followers
from _traincheck.gathered_rows import GatheredRows
from _traincheck.generators import Generators
from _traincheck.hand_clears import HandClears
from _traincheck.hand_steps import HandSteps
from _traincheck.hidden_parts import HiddenParts
from _traincheck.holds import Holds
from _traincheck.input_scales import InputScales
from _traincheck.inputs_and_targets import TargetsAmongInputs
from _traincheck.kept_averages import KeptAverages
from _traincheck.last_losses import LastLosses
from _traincheck.kept_bests import KeptBests
from _traincheck.kept_objects import KeptObjects
from _traincheck.layer_settings import LayerSettings
from _traincheck.leftover_gradients import LeftoverGradients
from _traincheck.lineages import Lineages
from _traincheck.local_backwards import LocalBackwards
from _traincheck.loaded_states import LoadedStates
from _traincheck.loader_table import LoaderTable
from _traincheck.loss_graph import LossGraphs
from _traincheck.loss_lines import LossLines
from _traincheck.masked_rows import MaskedRows
from _traincheck.masked_ends import MaskedEnds
from _traincheck.models import Models
from _traincheck.moved_parts import MovedParts
from _traincheck.moved_replicas import MovedReplicas
from _traincheck.past_wrappers import PastWrappers
from _traincheck.penalties import Penalties
from _traincheck.planner import Planner
from _traincheck.positional_states import PositionalStates
from _traincheck.process import Process
from _traincheck.prompt_ends import PromptEnds
from _traincheck.random_evaluations import RandomEvaluations
from _traincheck.rank_draws import RankDraws
from _traincheck.rank_rows import RankRows
from _traincheck.rank_splits import RankSplits
from _traincheck.recomputation import Recomputation
from _traincheck.new_terms import NewTerms
from _traincheck.number_terms import NumberTerms
from _traincheck.old_gradients import OldGradients
from _traincheck.ordered_training import OrderedTraining
from _traincheck.remade_optimizers import RemadeOptimizers
from _traincheck.repeated_averages import RepeatedAverages
from _traincheck.repeated_clips import RepeatedClips
from _traincheck.repeated_draws import RepeatedDraws
from _traincheck.repeated_rows import RepeatedRows
from _traincheck.replaced_transforms import ReplacedTransforms
from _traincheck.resized_masks import ResizedMasks
from _traincheck.resumed_scales import ResumedScales
from _traincheck.resumed_schedules import ResumedSchedules
from _traincheck.rounded_averages import RoundedAverages
from _traincheck.rounded_steps import RoundedSteps
from _traincheck.row_orders import RowOrders
from _traincheck.sampler_orders import SamplerOrders
from _traincheck.samplers import Samplers
from _traincheck.scaler import HalfPrecision
from _traincheck.scaler_steps import ScalerSteps
from _traincheck.seeded_orders import SeededOrders
from _traincheck.scaled_splits import ScaledSplits
from _traincheck.schedulers import Schedules
from _traincheck.shadows import Shadows
from _traincheck.shared_bests import SharedBests
from _traincheck.shared_files import SharedFiles
from _traincheck.shared_samples import SharedSamples
from _traincheck.short_passes import ShortPasses
from _traincheck.sight import Sight
from _traincheck.signs import Signs
from _traincheck.sorted_samples import SortedSamples
from _traincheck.sorted_targets import SortedTargets
from _traincheck.stale_statistics import StaleStatistics
from _traincheck.standing_averages import StandingAverages
from _traincheck.standing_counters import StandingCounters
from _traincheck.stateless_resumes import StatelessResumes
from _traincheck.source_looks import SourceLooks
from _traincheck.states import States
from _traincheck.step_lines import StepLines
from _traincheck.still_copies import StillCopies
from _traincheck.still_ratios import StillRatios
from _traincheck.stopping import Stopping
from _traincheck.stray_terms import StrayTerms
from _traincheck.symmetric_weights import SymmetricWeights
from _traincheck.teachers import Teachers
from _traincheck.tied_answers import TiedAnswers
from _traincheck.ties import Ties
from _traincheck.topology import Topology
from _traincheck.trained_rows import TrainedRows
from _traincheck.ungathered_shares import UngatheredShares
from _traincheck.untrained_passes import UntrainedPasses
from _traincheck.unstepped_states import UnsteppedStates
from _traincheck.unused_splits import UnusedSplits
from _traincheck.unwrapped_parts import UnwrappedParts
from _traincheck.worker_batches import WorkerBatches
from _traincheck.worker_copies import WorkerCopies
from _traincheck.vanishing_rates import VanishingRates
from _traincheck.wrapped_apart import WrappedApart
from _traincheck.wrapped_models import WrappedModels
from _traincheck.wrapper_inputs import WrapperInputs
from _traincheck.written_data import WrittenData
from _traincheck.written_scalars import WrittenScalars
from _traincheck.zero_gradients import ZeroGradients

if TYPE_CHECKING:
    from traincheck_core import Core

    from _traincheck.wrapping import Replaced

    from _traincheck.awake import Awake
    from _traincheck.budget import Budget
    from _traincheck.models import Model
    from _traincheck.plan import Plan


class Watch:
    """The tables of this process; a forked child begins with empty ones.

    Threads: all access is under the interpreter's lock, and every update is
    either one dictionary operation or idempotent. There is no lock of ours
    that a fork could leave taken.
    """

    def __init__(self, core: Core, plan: Plan, budget: Budget | None = None) -> None:
        self.core = core
        # Functions to be exchanged wherever torch refers to them, by id:
        # (original, replacement).
        self.replaced: Replaced = {}
        self.limits: set[str] = set()  # of sight; a child has them, too
        self.clock = Clock(core)
        self.planner = Planner(core, plan)
        self.recorded = Recorded()
        self.control = Control(core, self.planner, self.recorded, budget)
        self.reset()

    def reset(self) -> None:
        """Forgets everything; numbers of objects are worth nothing any more."""
        self.control.forked()
        self.process = Process(self.core, self.control)
        self.stopping = Stopping(self.core, self.process)
        self.models = Models(self.core)
        self.holds = Holds(self.core, self.models)
        self.states = States(
            self.core, self.models, self.holds, self.recorded, self.planner
        )
        self.models.found = self.states.constructed
        self.holds.found = self.states.constructed_loose
        self.clock.reset()
        self.shadows = Shadows(self.core, self.models, self.holds)
        self.checkpoints = CheckpointContent(self.core, self.models, self.recorded)
        self.clock.closed = self._step_ended
        self.loaders = LoaderTable(self.core)
        self.graphs = CudaGraphs()
        self.generators = Generators(self.core, self.recorded, self.planner)
        self.samplers = Samplers(self)
        self.scalars = WrittenScalars(self.core)
        self.found_inf = WrittenScalars(self.core)
        self.topology = Topology(self.core)
        self.ties = Ties()
        self.resumed_schedules = ResumedSchedules()
        self.schedules = Schedules(
            self.core,
            self.resumed_schedules,
            lambda optimizer: self.averaged_gradients.of_all(optimizer),
        )
        self.shared_samples = SharedSamples()
        self.lineages = Lineages()
        self.exchanged_folds = ExchangedFolds(self.lineages)
        self.sight = Sight(self.core, self.planner, self.limits)
        self.control.planned = self.sight.begins
        limited_by = self.sight.limited_by
        self.values = DeviceValues(self.core, lambda: limited_by("devices"))
        self.recomputation = Recomputation(self.core, self.models, self.values)
        self.awake: Awake = set()
        self.step_lines = StepLines(self.core)
        self.prompt_ends = PromptEnds(self.awake)
        self.row_orders = RowOrders(self.prompt_ends)
        self.loss_lines = LossLines(self.core, self.models)
        self.loss_graphs = LossGraphs(
            self.core, self.values, self.row_orders, self.loss_lines, limited_by
        )
        self._look_anew()

    def _look_anew(self) -> None:
        """The part of reset that makes what signs.py asks, and the like."""
        self.signs = Signs(self)
        self._look_at_data_anew()
        self._look_at_averages_anew()
        self.sorted_samples = SortedSamples()
        self.averaged_gradients = AveragedGradients(
            self.topology, self.holds, self.values
        )
        self.autocast_casts = AutocastCasts(self.awake)
        self.blind_samples = BlindSamples(self.core, self.step_lines, self.awake)
        self.carried_states = CarriedStates(self.core, self.awake)
        self.shadows.found = self._follows
        self.loaded_states = LoadedStates(self.values, self.awake)
        self._look_at_gradients_anew()
        self.source_looks = SourceLooks(self.core, self.models)
        self.foreign_gradients = ForeignGradients(self.core, self.values, self.awake)
        self.frozen_norms = FrozenNorms(self.models, self.holds)
        self.frozen_parts = FrozenParts(self.core, self.awake)
        self.frozen_zeros = FrozenZeros(self.models, self.values, self.awake)
        self.forgetful_moments = ForgetfulMoments(self.values)
        self.forgotten_bests = ForgottenBests(self.awake)
        self.kept_bests = KeptBests(self.core, self.awake)
        self.shared_bests = SharedBests(self.core, self.awake)
        self.shared_files = SharedFiles(self.core, self.clock, self.topology)
        self.standing_counters = StandingCounters(self.values)
        self.leftover_gradients = LeftoverGradients()
        self.last_losses = LastLosses(self.core, self.clock, self.holds)
        self.masked_rows = MaskedRows(self.values, self.awake)
        self.resumed_scales = ResumedScales(self.awake)
        self.layer_settings = LayerSettings(self.models)
        self.half_precision = HalfPrecision(self.awake)
        self.hidden_parts = HiddenParts(self.core, self.models, self.holds, self.values)
        self.penalties = Penalties()
        self.positions = PositionalStates(self.awake)
        self.remade_optimizers = RemadeOptimizers(self.awake)
        self.repeated_draws = RepeatedDraws()
        self.rank_draws = RankDraws(self.core)
        self.local_backwards = LocalBackwards()
        self.past_wrappers = PastWrappers()
        self.moved_replicas = MovedReplicas()
        self.scaler_steps = ScalerSteps()
        self.blind_forwards = BlindForwards(self.core, self.models, self.step_lines)
        self.rounded_steps = RoundedSteps(self.values, self.awake)
        self.stateless_resumes = StatelessResumes(self.awake)
        self.unstepped_states = UnsteppedStates(self.step_lines, self.awake)
        self.stale_statistics = StaleStatistics(self.models, self.values, self.awake)
        self.stray_terms = StrayTerms(self.core)
        self.still_ratios = StillRatios(self.core, self.values)
        self.hand_steps = HandSteps(self.models, self.values)
        self.new_terms = NewTerms(self.core)
        self.symmetric_weights = SymmetricWeights(self.values, self.awake)
        self.tied_answers = TiedAnswers(self.core, self.values)
        self.teachers = Teachers(self.holds, self.values, self.awake)
        self.unwrapped_parts = UnwrappedParts(self.core, self.topology, self.models)
        self.wrapped_apart = WrappedApart(self.core)
        self.wrapped_models = WrappedModels(self.core, self.models)
        self.vanishing_rates = VanishingRates()
        self.wrapper_inputs = WrapperInputs(self.core, self.recorded)
        self.zero_gradients = ZeroGradients(self.values, self.awake)

    def _look_at_gradients_anew(self) -> None:
        self.number_terms = NumberTerms()
        self.old_gradients = OldGradients()
        self.hand_clears = HandClears(self.core, self.holds, self.states)
        self.discarded_backwards = DiscardedBackwards(
            self.core, self.step_lines, self.values
        )
        self.clipped = Clipped(self.step_lines, self.awake)
        self.repeated_clips = RepeatedClips(self)
        self.gathered_rows = GatheredRows(self.core, self.values)

    def _look_at_averages_anew(self) -> None:
        self.kept_averages = KeptAverages(self.step_lines)
        self.averages_in_place = AveragesInPlace(self.holds, self.values)
        self.standing_averages = StandingAverages(
            self.core, self.models, self.holds, self.values, self.awake
        )
        self.repeated_averages = RepeatedAverages(
            self.standing_averages.pairs_of, self.step_lines, self.values, self.awake
        )
        self.rounded_averages = RoundedAverages(self.models, self.values, self.awake)
        self.averages = Averages(self.values, self.awake)
        self.sorted_targets = SortedTargets()
        self.followers = Followers(self.models, self.holds, self.values, self.awake)
        self.still_copies = StillCopies(self.values, self.awake)

    def _look_at_data_anew(self) -> None:
        self.dropped_samples = DroppedSamples()
        self.empty_passes = EmptyPasses(self.awake)
        self.evaluations = Evaluations()
        self.filled_rows = FilledRows(self.values, self.awake)
        self.first_batches = FirstBatches()
        self.input_scales = InputScales()
        self.masked_ends = MaskedEnds()
        self.ordered_training = OrderedTraining()
        self.balanced_draws = BalancedDraws()
        self.random_evaluations = RandomEvaluations()
        self.rank_rows = RankRows(self.core)
        self.class_tables = ClassTables()
        self.rank_splits = RankSplits(self.core)
        self.sampler_orders = SamplerOrders(self.core)
        self.seeded_orders = SeededOrders()
        self.short_passes = ShortPasses()
        self.repeated_rows = RepeatedRows()
        self.replaced_transforms = ReplacedTransforms()
        self.resized_masks = ResizedMasks()
        self.scaled_splits = ScaledSplits()
        self.targets_among_inputs = TargetsAmongInputs()
        self.trained_rows = TrainedRows(self.lineages)
        self.ungathered_shares = UngatheredShares(self.awake)
        self.untrained_passes = UntrainedPasses(self.core)
        self.kept_objects = KeptObjects(self.awake)
        self.carried_metrics = CarriedMetrics(self.untrained_passes, self.awake)
        self.unused_splits = UnusedSplits()
        self.worker_batches = WorkerBatches(self.core)
        self.worker_copies = WorkerCopies()
        self.written_data = WrittenData(self.core)
        self.moved_parts = MovedParts()

    def _follows(self, model: Model) -> None:
        self.averages.follows(model)
        self.rounded_averages.copy_found()

    def _step_ended(self) -> None:
        self.values.poll()
        self.shadows.update()
        self.rounded_averages.step_ended()
        self.checkpoints.step_ended()
        self.states.step_ended()
        self.control.step_closed()
        self.stopping.step_closed()
