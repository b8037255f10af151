#include "invariants/rules/recorded_calls.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "invariants/rules/skeleton_calls.h"

namespace traincheck {

bool IsBeyondSkeleton(const ProcessFacts& facts, const FunctionMatch& event) {
  if (event.level == Level::kCategory) return !IsOfSkeleton(event.text);
  bool found = false;
  for (const auto& [id, function] : facts.definitions().functions()) {
    if (!event.Matches(function)) continue;
    if (!IsOfSkeleton(function.category.text())) return true;
    found = true;
  }
  return !found;
}

bool IsRecorded(const ProcessFacts& facts, const FunctionMatch& event,
                const RecordedSince& since) {
  const RecordedFunctions& recorded = facts.recorded().functions();
  // A module whose forward was never called has no definition of it.
  const bool is_forward = absl::EndsWith(event.text, ".forward");
  if (!recorded.told() || is_forward) return true;
  if (event.level == Level::kCategory && IsOfSkeleton(event.text)) return true;
  const auto& functions = facts.definitions().functions();
  return std::any_of(functions.begin(), functions.end(), [&](const auto& row) {
    const auto& [id, function] = row;
    return event.Matches(function) && (IsOfSkeleton(function.category.text()) ||
                                       recorded.RecordsSince(id, since.plans));
  });
}

std::string NotRecordedWords(const ProcessFacts& facts,
                             const FunctionMatch& event) {
  return "calls of " + event.Describe() + " were not recorded on " +
         facts.Name() + ": its capture plan does not name them";
}

std::string WhyMissed(const ProcessFacts& facts, const FunctionMatch& event,
                      const RecordedSince& since, uint64_t gaps) {
  if (gaps != facts.gaps()) return facts.gap_reason();
  if (!facts.recorded().WholeSince(since, 0, 0) &&
      IsBeyondSkeleton(facts, event)) {
    return facts.not_sampled();
  }
  if (!IsRecorded(facts, event, since)) return NotRecordedWords(facts, event);
  return "";
}

}  // namespace traincheck
