#include "invariants/rules/recorded_calls.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "invariants/rules/skeleton_calls.h"

namespace traincheck {

const RecordedCalls::Functions& RecordedCalls::Matching(
    const ProcessFacts& facts, const FunctionMatch& event) {
  const auto& functions = facts.definitions().functions();
  const auto matched = [](uint32_t id, const FunctionInfo& function) {
    return Matched{id, IsOfSkeleton(function.category.text())};
  };
  // Ids are not used again for other functions, so their number says whether
  // there is a new one.
  if (functions.size() != known_) {
    known_ = functions.size();
    by_name_.clear();
    others_.clear();
    for (const auto& [id, function] : functions) {
      by_name_[function.name].push_back(matched(id, function));
    }
  }
  // Most rules name their function, and the table by name serves all of them.
  // Others have a list each, made when it is first asked for.
  if (event.level == Level::kName) {
    static const auto* const kNone = new Functions;
    const auto found = by_name_.find(event.text);
    return found == by_name_.end() ? *kNone : found->second;
  }
  const auto [found, is_new] = others_.try_emplace(event);
  if (is_new) {
    for (const auto& [id, function] : functions) {
      if (event.Matches(function)) {
        found->second.push_back(matched(id, function));
      }
    }
  }
  return found->second;
}

bool RecordedCalls::IsBeyondSkeleton(const ProcessFacts& facts,
                                     const FunctionMatch& event) {
  if (event.level == Level::kCategory) return !IsOfSkeleton(event.text);
  const Functions& functions = Matching(facts, event);
  // Several functions may have one role: if any of them is not of the skeleton,
  // its calls may be what was not recorded.
  return functions.empty() ||
         std::any_of(functions.begin(), functions.end(),
                     [](const Matched& one) { return !one.of_skeleton; });
}

bool RecordedCalls::IsRecorded(const ProcessFacts& facts,
                               const FunctionMatch& event,
                               const RecordedSince& since) {
  const RecordedFunctions& recorded = facts.recorded().functions();
  // An agent of an earlier version, which says nothing, records all calls. A
  // module whose forward was never called has no definition of it.
  const bool is_forward = absl::EndsWith(event.text, ".forward");
  if (!recorded.told() || is_forward) return true;
  // No plan leaves calls of the skeleton out.
  if (event.level == Level::kCategory && IsOfSkeleton(event.text)) return true;
  // A function without a definition was not wrapped as far as anybody knows:
  // that it was not called would be a guess.
  const Functions& functions = Matching(facts, event);
  return std::any_of(
      functions.begin(), functions.end(), [&](const Matched& one) {
        return one.of_skeleton || recorded.RecordsSince(one.id, since.plans);
      });
}

std::string NotRecordedWords(const ProcessFacts& facts,
                             const FunctionMatch& event) {
  return "calls of " + event.Describe() + " were not recorded on " +
         facts.Name() + ": its capture plan does not name them";
}

std::string RecordedCalls::WhyMissed(const ProcessFacts& facts,
                                     const FunctionMatch& event,
                                     const RecordedSince& since,
                                     uint64_t gaps) {
  // The marks that the other reasons go by may be among what is missing.
  if (gaps != facts.gaps()) return facts.gap_reason();
  if (!facts.recorded().WholeSince(since, 0, 0) &&
      IsBeyondSkeleton(facts, event)) {
    return facts.not_sampled();
  }
  if (!IsRecorded(facts, event, since)) return NotRecordedWords(facts, event);
  return "";
}

}  // namespace traincheck
