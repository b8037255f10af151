#include "invariants/rules/unseen_in_run.h"

#include <set>
#include <tuple>
#include <utility>

#include "invariants/rules/rule_needs.h"

namespace traincheck {
namespace {

// By all that WhyUnseen looks at, except the name that it gives.
struct SeesLess {
  bool operator()(const ProcessBrief* a, const ProcessBrief* b) const {
    const auto key = [](const ProcessBrief& brief) {
      return std::tie(brief.gap_reason, brief.was_lost);
    };
    if (key(*a) != key(*b)) return key(*a) < key(*b);
    if (a->sight == nullptr || b->sight == nullptr) {
      return a->sight == nullptr && b->sight != nullptr;
    }
    return *a->sight < *b->sight;
  }
};

}  // namespace

UnseenInRun::UnseenInRun(std::string missing_rank,
                         std::vector<ProcessBrief> trainings)
    : missing_rank_(std::move(missing_rank)), trainings_(std::move(trainings)) {
  // The pointers hold because trainings_ does not change any more.
  std::set<const ProcessBrief*, SeesLess> known;
  for (const ProcessBrief& training : trainings_) {
    if (known.insert(&training).second) different_.push_back(&training);
  }
}

std::string UnseenInRun::Why(const CaptureNeeds& needs) const {
  if (!missing_rank_.empty()) return missing_rank_;
  for (const ProcessBrief* training : different_) {
    std::string reason = WhyUnseen(*training, needs);
    if (!reason.empty()) return reason;
  }
  // A run in which nothing trained gave no rule an occasion, but shows nothing
  // either.
  return trainings_.empty() ? "no step of an optimizer was recorded" : "";
}

}  // namespace traincheck
