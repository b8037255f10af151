#include "invariants/facts/sight.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/whole_part.h"

namespace traincheck {
namespace {

struct Limit {
  const char* words;
  // With what the names of the facts that it concerns begin ("": all of them);
  // "*": records, too.
  std::vector<const char*> facts;
};

// Limits of trainings on a GPU. The words in front are what the agent writes
// behind "sight:limit "; a limit concerns the facts whose names begin with one
// of the texts in the list. Values on a device are copied only where they are
// small and nothing has to wait for them (docs/gpu.md).
std::map<std::string, Limit> LimitsOfDevices() {
  return {
      {"devices",
       {"values of tensors on a device could not be read by the agent",
        {"loss.", "opt.", "load.", "recompute.", "saved.",
         "step.means_alike"}}},
      {"device values",
       {"parameters are on a device, whose checkpoints and some of whose "
        "values the agent does not read",
        {"loss.hand_steps_add_up",    "loss.own_rows_constant",
         "loss.positions_of_samples", "loss.reads_bytes",
         "loss.divides_bytes_twice",  "opt.losses_are_zero",
         "opt.moves_masked_rows",     "opt.average_is_model",
         "opt.average_stands_still",  "opt.foreign_gradients",
         "opt.frozen_norm_moves",     "opt.frozen_part_apart",
         "opt.keeps_one_object",      "opt.layer_gets_zeros",
         "opt.metric_carried_on",     "opt.rows_of_one_number",
         "opt.trains_beside_wrapper", "opt.wrapped_apart",
         "step.means_alike",          "saved."}}},
      {"device rates",
       {"learning rates are tensors on a device, which the agent does not read",
        {"opt.rate_scale_unused", "opt.rates_ended", "schedule.merges_rates",
         "schedule.metrics_apart", "schedule.outruns", "schedule.rate_",
         "schedule.slow_warm_up", "schedule.state_not_saved",
         "schedule.undone"}}},
      {"device metrics",
       {"schedulers are given metrics on a device, which the agent does not "
        "read",
        {"schedule.against_metric", "schedule.metrics_apart"}}},
      {"device losses",
       {"some tensors of the losses are on a device, and too large for the "
        "agent to copy them",
        {"loss."}}},
      {"device attention",
       {"weights or masks of attention are on a device, and too large for the "
        "agent to copy them",
        {"loss.sees_targets", "loss.sees_later_only", "loss.repeats_input",
         "loss.mask_inverted", "loss.mask_of_ones"}}},
      {"batches",
       {"the agent itself looks at batches in the memory of the CPU only, and "
        "some are on a device",
        {"loader."}}},
  };
}

// All limits that this version knows. Those with "*" hide calls and states as
// well, so that a rule without a window is unknown and not without an occasion
// (rule_needs.cc). Those with "" concern all that the agent itself looks at,
// and nothing that is recorded.
const std::map<std::string, Limit>& Limits() {
  static const auto* const kLimits = [] {
    auto* const limits = new std::map<std::string, Limit>{
        {"compiled",
         {"parts of the training are compiled, and what runs inside them is "
          "not recorded",
          {"*"}}},
        {"replays",
         {"parts of the training are replayed from CUDA graphs, and what runs "
          "inside them is not recorded",
          {"*"}}},
        {"off",
         {"recording was switched off for a while, by the capture plan",
          {"*"}}},
        {"failed",
         {"a hook of the agent has failed; the training's log says which",
          {""}}},
        {"threads",
         {"several threads train, and the agent looks at nothing that another "
          "thread may write",
          {""}}},
        {"transforms",
         {"the agent itself does not look into forwards within torch.func's "
          "transforms or a trace",
          {"loss.", "opt."}}},
        {"classes",
         {"the agent itself does not look into parameters of another class "
          "(DTensor)",
          {"loss.", "opt.", "load.", "recompute."}}},
        {"packed",
         {"saved tensors are packed (checkpointing, offloading) and are not "
          "read",
          {"loss."}}},
        {"graphs",
         {"this version of torch does not say what shapes a graph has",
          {"loss."}}},
    };
    limits->merge(LimitsOfDevices());
    return limits;
  }();
  return *kLimits;
}

// Does the limit concern the fact; with none: all that is recorded?
bool Concerns(const Limit& limit, const std::string& fact) {
  for (const std::string_view some : limit.facts) {
    if (some == "*") return true;
    if (!fact.empty() && fact.rfind(some, 0) == 0) return true;
  }
  return false;
}

}  // namespace

void Sight::OnScalar(const ScalarEvent& event) {
  if (!IsAboutSight(*event.name)) return;
  std::string what = event.name->substr(sizeof(kPrefix) - 1);
  if (what == "looks") {
    // Said once for each plan, ahead of what the plan asks for: a period
    // begins.
    ++periods_;
    // Clamped: the number is a double from a record, which anybody may have
    // written.
    looks_ = static_cast<uint32_t>(
        std::clamp<int64_t>(WholePart(event.value).value_or(0), 0, 1'000'000));
    return;
  }
  constexpr char kLimit[] = "limit ";
  if (what.rfind(kLimit, 0) == 0) {
    // For good: what escaped once may have been what a rule is about.
    limits_.insert(what.substr(sizeof(kLimit) - 1));
    return;
  }
  // A name counts if it was said in each period so far: what one plan left out
  // was not seen while it was in force.
  uint32_t& plans = planned_[std::move(what)];
  if (plans + 1 == periods_) plans = periods_;
}

std::string Sight::LimitOfRecords() const { return LimitOf(""); }

std::string Sight::LimitOf(const std::string& fact) const {
  for (const std::string& limit : limits_) {
    const auto known = Limits().find(limit);
    // A limit that a later version of the agent knows may concern anything.
    if (known == Limits().end()) return "the agent says: " + limit;
    if (Concerns(known->second, fact)) return known->second.words;
  }
  return "";
}

void Sight::Fields(Archive& archive) {
  archive(periods_, looks_, planned_, limits_);
}

void SightTracker::Fields(Archive& archive) { archive(sight_); }

}  // namespace traincheck
