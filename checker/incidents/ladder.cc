#include "checker/incidents/ladder.h"

#include <map>
#include <string_view>

namespace traincheck {
namespace {

// Facts by the rung of the rules that ask for a value of them (RungOfFact).
// ladder_test fails for a fact of the engine that stands in none of these
// tables and is not named there as one that no rule asks for.
//
// Setup: how the training is put together. What models, optimizers, wrappers
// and schedules consist of, what is frozen, tied or loaded, and settings.
constexpr std::string_view kSetupFacts[] = {"call.inside_wrapper",
                                            "call.overrides",
                                            "load.leaves_renamed",
                                            "load.of_itself",
                                            "load.of_nothing",
                                            "loaded.consumed",
                                            "opt.argument_unread",
                                            "opt.average_is_model",
                                            "opt.average_stands_still",
                                            "opt.best_forgotten",
                                            "opt.best_is_shared",
                                            "opt.best_stays",
                                            "opt.clips_nothing",
                                            "opt.decays_vectors_only",
                                            "opt.drops_most",
                                            "opt.epsilon_vanishes",
                                            "opt.float16_unscaled",
                                            "opt.forgets_statistics",
                                            "opt.frozen_at_zeros",
                                            "opt.frozen_in_vain",
                                            "opt.frozen_part_apart",
                                            "opt.has_empty_group",
                                            "opt.keeps_the_worst",
                                            "opt.late_left_out",
                                            "opt.leaves_state",
                                            "opt.layers_made_in_forward",
                                            "opt.layers_repeated",
                                            "opt.loaded_state_lost",
                                            "opt.made_anew",
                                            "opt.moments_forget",
                                            "opt.part_left_out",
                                            "opt.parts_hidden",
                                            "opt.rate_scale_unused",
                                            "opt.patience_not_set_back",
                                            "opt.replicas_moved",
                                            "opt.result_dropped",
                                            "opt.resumes_without_state",
                                            "opt.saves_unstepped",
                                            "opt.scale_begins_anew",
                                            "opt.state_by_position",
                                            "opt.stepped_besides_scaler",
                                            "opt.tensor_not_parameter",
                                            "opt.ties_kept",
                                            "opt.trains_beside_wrapper",
                                            "opt.units_alike",
                                            "opt.wrapped_apart",
                                            "schedule.all_on_one",
                                            "schedule.against_metric",
                                            "schedule.ends_in_first_pass",
                                            "schedule.idle",
                                            "schedule.last_epoch_apart",
                                            "schedule.merges_rates",
                                            "schedule.milestones_in_first_pass",
                                            "schedule.metrics_apart",
                                            "schedule.outruns",
                                            "schedule.rate_reset",
                                            "schedule.rate_as_factor",
                                            "schedule.rate_vanishes",
                                            "schedule.counts_batches",
                                            "schedule.slow_warm_up",
                                            "schedule.undone",
                                            "schedule.state_not_loaded",
                                            "schedule.state_not_saved",
                                            "schedule.unused",
                                            "var.alias_group",
                                            "var.held_by",
                                            "var.identity_epoch",
                                            "var.known_to_wrapper",
                                            "var.norm_decays",
                                            "var.replica_group",
                                            "var.sharded",
                                            "var.shared_memory",
                                            "wrapped.is_frozen"};

// Mode: in which state code runs. Training or evaluation, gradients and
// autocast on or off, and what random generators draw.
constexpr std::string_view kModeFacts[] = {"call.effective_dropout_p",
                                           "call.eval_dropout_p",
                                           "call.evaluates_training",
                                           "call.frozen_as_before",
                                           "call.inside_backward",
                                           "call.is_recompute",
                                           "call.is_root",
                                           "call.module_training",
                                           "call.rng_advanced",
                                           "call.stage",
                                           "ctx.autocast_dtype",
                                           "ctx.grad_mode",
                                           "loader.evaluated_in_training",
                                           "loader.generator_set_back",
                                           "opt.forward_without_gradients",
                                           "opt.frozen_norm_moves",
                                           "opt.ranks_draw_alike",
                                           "opt.repeats_draws",
                                           "opt.stale_casts",
                                           "opt.teacher_drops",
                                           "opt.trains_as_before",
                                           "recompute.redraws"};

// Data: what a step is given. Rows that repeat, are left out or are shared
// between training and evaluation, and the order in which they come.
constexpr std::string_view kDataFacts[] = {"loader.begins_again",
                                           "loader.classes_apart",
                                           "loader.evaluates_trained_rows",
                                           "loader.draws_in_evaluation",
                                           "loader.ignores_split",
                                           "loader.interpolates_classes",
                                           "loader.consumed",
                                           "opt.carries_state",
                                           "opt.evaluates_a_share",
                                           "opt.rows_of_one_number",
                                           "opt.keeps_one_object",
                                           "opt.metric_carried_on",
                                           "opt.loader_drops_all",
                                           "loader.not_standardised",
                                           "loader.never_shuffles",
                                           "loader.repeats_rows",
                                           "loader.samples_alike",
                                           "loader.leaves_samples_out",
                                           "loader.scaled_apart",
                                           "loader.scaled_before_split",
                                           "loader.moves_parts_apart",
                                           "loader.shares_samples",
                                           "loader.folds_share_model",
                                           "loader.ends_early",
                                           "loader.orders_differ",
                                           "loader.rows_differ",
                                           "loader.splits_differ",
                                           "loader.target_among_inputs",
                                           "loader.transform_replaced",
                                           "loader.trains",
                                           "loader.trains_no_more",
                                           "loader.weights_too_few",
                                           "loader.windows_overlap",
                                           "loader.workers_hold_old",
                                           "loader.workers_repeat",
                                           "loader.writes_data",
                                           "loss.counts_held_out",
                                           "loss.sorted_batches",
                                           "sampler.shuffles"};

// Calls: what a step does with its data. How the loss is computed, and in which
// order backwards, steps and clearings come.
constexpr std::string_view kCallFacts[] = {"call.shapes_match",

                                           "grad.clipped_in_vain",
                                           "loader.averages_without_statistics",
                                           "loader.ends_masked",
                                           "loss.advantage_has_gradient",
                                           "loss.answers_alike",
                                           "loss.attends_over_queries",
                                           "loss.attends_to_padding",
                                           "loss.averages_padding",
                                           "loss.averages_over_classes",
                                           "loss.balances_twice",
                                           "loss.bootstraps_with_gradient",
                                           "loss.broadcast",
                                           "loss.contrasts_with_itself",
                                           "loss.ctc_blank",
                                           "loss.ctc_of_scores",
                                           "loss.kl_of_probabilities",
                                           "loss.kl_of_target",
                                           "loss.labels_no_signs",
                                           "loss.divided_twice",
                                           "loss.favours_frequent",
                                           "loss.in_low_precision",
                                           "loss.keeps_ignored",
                                           "loss.layers_are_linear",
                                           "loss.learns_padding",
                                           "loss.mask_inverted",
                                           "loss.mask_of_ones",
                                           "loss.multiplies_crosswise",
                                           "loss.mixes_rows",
                                           "loss.no_graph",
                                           "loss.no_logarithms",
                                           "loss.noise_by_variance",
                                           "loss.normalised_twice",
                                           "loss.one_class",
                                           "loss.one_sample",
                                           "loss.over_samples",
                                           "loss.packs_other_lengths",
                                           "loss.overlap_of_scores",
                                           "loss.padding_idx_is_a_token",
                                           "loss.penalty_of_parts",
                                           "loss.penalty_without_graph",
                                           "loss.positions_of_samples",
                                           "loss.pools_padding",
                                           "loss.reads_bytes",
                                           "loss.divergence_scaled_apart",
                                           "loss.divides_bytes_twice",
                                           "loss.reads_padded_state",
                                           "loss.repeats_input",
                                           "loss.rounds_positions",
                                           "loss.rows_reordered",
                                           "loss.samples_as_steps",
                                           "loss.scores_dropped",
                                           "loss.scores_rectified",
                                           "loss.attends_across_texts",
                                           "loss.hand_steps_add_up",
                                           "loss.lowers_entropy",
                                           "loss.own_rows_constant",
                                           "loss.ratio_starts_apart",
                                           "loss.ratio_stays_one",
                                           "loss.sees_later_only",
                                           "loss.sees_targets",
                                           "loss.several_labels",
                                           "loss.some_answers_alike",
                                           "loss.shifts_twice",
                                           "loss.skips_first_word",
                                           "loss.stray_term",
                                           "loss.targets_no_probabilities",
                                           "loss.targets_out_of_reach",
                                           "loss.term_is_a_number",
                                           "loss.term_without_graph",
                                           "loss.variance_confused",
                                           "loss.weighs_by_frequency",
                                           "loss.weighs_over_samples",
                                           "opt.averages_without_statistics",
                                           "opt.clears_before_step",
                                           "opt.clips_micro_batches",
                                           "opt.discards_backwards",
                                           "opt.divides_by_more",
                                           "opt.evaluates_still_copy",
                                           "opt.foreign_gradients",
                                           "opt.gradients_are_old",
                                           "opt.grads_cleared_since",
                                           "opt.has_stepped",
                                           "opt.last_backward_is_local",
                                           "opt.leftover_gradients",
                                           "opt.only_last_loss",
                                           "opt.samples_without_gradient",
                                           "opt.step_index",
                                           "opt.steps_past_wrapper",
                                           "opt.sums_means",
                                           "recompute.cut",
                                           "recompute.writes_buffers",
                                           "save.shared_by_ranks",
                                           "schedule.cycle_waits",
                                           "schedule.early",
                                           "schedule.fast",
                                           "schedule.rises_again",
                                           "step.backwards",
                                           "step.means_alike"};

// Results: what these calls returned.
constexpr std::string_view kResultFacts[] = {
    "opt.losses_are_zero", "opt.needs_no_gradients", "opt.loss_not_finite"};

// Gradients: is there one, and is it finite, scaled or zero?
constexpr std::string_view kGradientFacts[] = {
    "backward.scale", "grad.finite",          "grad.present", "grad.scaled",
    "grad.zero",      "opt.layer_gets_zeros", "var.got_grad"};

// Updates: what an optimizer's step, or something else, changed in parameters,
// buffers and averages, and what was lost in rounding.
constexpr std::string_view kUpdateFacts[] = {"buffer.updated_or_loaded",
                                             "buffer.written_by_forward",
                                             "opt.copy_keeps_statistics",
                                             "opt.counter_stands",
                                             "opt.counts_on",
                                             "opt.average_left_in",
                                             "opt.average_rounded_away",
                                             "opt.averages_micro_batches",
                                             "opt.follower_apart",
                                             "opt.follower_flees",
                                             "opt.follower_leads",
                                             "opt.moves_masked_rows",
                                             "opt.parameter_rounded_away",
                                             "opt.rates_ended",
                                             "opt.rounded_away",
                                             "rows_changed_without_grad",
                                             "var.changed",
                                             "var.effective_lr",
                                             "var.frozen_changed",
                                             "var.lr_nonzero",
                                             "var.overwritten"};

using Rungs = std::map<std::string_view, Rung>;

// Made once, at the first question, and never destroyed: threads may ask until
// the process ends.
const Rungs& RungsOfFacts() {
  static const auto* const kRungs = [] {
    auto* const rungs = new Rungs;
    const auto add = [rungs](Rung rung, const auto& facts) {
      for (const std::string_view fact : facts) rungs->emplace(fact, rung);
    };
    // Collectives, replicas and totals have relations of their own, which
    // families.cc places; no fact stands there.
    add(Rung::kSetup, kSetupFacts);
    add(Rung::kMode, kModeFacts);
    add(Rung::kData, kDataFacts);
    add(Rung::kCall, kCallFacts);
    add(Rung::kResult, kResultFacts);
    add(Rung::kGradient, kGradientFacts);
    add(Rung::kUpdate, kUpdateFacts);
    return rungs;
  }();
  return *kRungs;
}

}  // namespace

std::optional<Rung> RungOfFact(const std::string& fact) {
  const auto found = RungsOfFacts().find(fact);
  if (found == RungsOfFacts().end()) return std::nullopt;
  return found->second;
}

// Names come from stored violations, of older and newer versions too
// (RulePlaces).
std::optional<Rung> RungNamed(const std::string& name) {
  for (int rung = 0; rung <= static_cast<int>(Rung::kTotals); ++rung) {
    if (name == NameOf(static_cast<Rung>(rung))) {
      return static_cast<Rung>(rung);
    }
  }
  return std::nullopt;
}

// Stored with violations and sent to clients; RungNamed reads them back.
const char* NameOf(Rung rung) {
  switch (rung) {
    case Rung::kSetup:
      return "setup";
    case Rung::kMode:
      return "mode";
    case Rung::kData:
      return "data";
    case Rung::kCall:
      return "call";
    case Rung::kResult:
      return "result";
    case Rung::kCollective:
      return "collective";
    case Rung::kGradient:
      return "gradient";
    case Rung::kUpdate:
      return "update";
    case Rung::kReplicas:
      return "replicas";
    case Rung::kTotals:
      return "totals";
  }
  return "";
}

}  // namespace traincheck
