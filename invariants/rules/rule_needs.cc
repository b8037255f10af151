#include "invariants/rules/rule_needs.h"

#include <utility>

#include "invariants/rules/fact_needs.h"

namespace traincheck {
namespace {

// "parameter.grad at pre_step", or "" where every plan of the process asks.
std::string UnplannedState(const Sight& sight, const std::string& kind,
                           const PlannedState& needed) {
  for (const auto& [value, points] : needed) {
    for (const std::string& point : points) {
      if (!sight.PlansState(kind, value, point)) return value + " at " + point;
    }
  }
  return "";
}

// What some plan of the process did not ask for; "": all was asked for.
std::string Unplanned(const Sight& sight, const CaptureNeeds& needs) {
  if (needs.all_calls() && !sight.PlansCalls("*")) return "all calls";
  // Whether they are called at all is the question, not what is recorded of the
  // call.
  for (const auto& [name, content] : needs.calls()) {
    if (!sight.PlansCalls(name)) return "calls of " + name;
  }
  for (const auto& [kind, needed] :
       {std::pair<std::string, const PlannedState&>{"state", needs.state()},
        {"statistics", needs.statistics()},
        {"rows", needs.rows()}}) {
    std::string unplanned = UnplannedState(sight, kind, needed);
    if (!unplanned.empty()) return unplanned;
  }
  if (needs.generators() && !sight.PlansGenerators()) return "generators";
  return "";
}

// What the agent itself may have missed of this fact; "": nothing.
std::string WhyNotLookedAt(const Sight& sight, const std::string& fact,
                           uint32_t since) {
  if (since > sight.looks()) {
    return "the agent is older than the rule and does not look at it; install "
           "the daemon's version beside the training";
  }
  return sight.LimitOf(fact);
}

}  // namespace

void AddNeeds(const Rule& rule, const Precondition& precondition,
              CaptureNeeds* needs) {
  rule.AddNeeds(needs);
  for (const Clause& clause : precondition.Clauses()) {
    // A condition that is not known leaves the rule undecided, so what it reads
    // is recorded, too.
    if (clause.fact) AddNeeds(*clause.fact, needs);
    if (clause.other) AddNeeds(*clause.other, needs);
  }
}

std::string WhyUnseen(const ProcessBrief& process, const CaptureNeeds& needs) {
  static const auto* const kNone = new Sight;
  // A brief of an older attempt has none, and then may have missed anything.
  const Sight& sight = process.sight ? *process.sight : *kNone;
  // What concerns the whole process comes first: missing records may be those
  // of the plan and of its limits.
  if (!process.gap_reason.empty()) return process.gap_reason;
  if (process.was_lost) {
    return "nothing was heard any more of " + process.Name();
  }
  if (sight.looks() == 0) {
    return process.Name() + " does not say what it looked at (an older agent)";
  }
  std::string limit = sight.LimitOfRecords();
  if (!limit.empty()) return limit;
  for (const auto& [fact, since] : needs.looked_at()) {
    limit = WhyNotLookedAt(sight, fact, since);
    if (!limit.empty()) return limit;
  }
  const std::string unplanned = Unplanned(sight, needs);
  if (unplanned.empty()) return "";
  return "the capture plan of " + process.Name() + " does not ask for " +
         unplanned;
}

}  // namespace traincheck
