#include "server/feedback/rule_places.h"

#include "base/logging.h"
#include "base/printable_text.h"
#include "checker/incidents/families.h"

namespace traincheck::server {

void RulePlaces::Read(const std::string& selection) const {
  // Noted first: one that cannot be read is not tried again for each violation.
  if (!read_.insert(selection).second) return;
  const absl::StatusOr<InvariantSet> set = sets_.Load(selection);
  if (!set.ok()) {
    spdlog::info("the places of rules are not known selection={} error={}",
                 QuotePrintable(selection),
                 QuotePrintable(std::string(set.status().message())));
    return;
  }
  for (const Invariant& rule : set->invariants) {
    places_[rule.id] = PlaceOf(*rule.rule);
  }
}

// Under the lock while a set is read, so that it is read once; callers are few
// (incidents with a silenced lead).
Place RulePlaces::Of(const v1::Violation& violation,
                     const std::string& selection) const {
  absl::MutexLock lock(&mutex_);
  if (!places_.contains(violation.invariant_id())) Read(selection);
  const auto known = places_.find(violation.invariant_id());
  if (known != places_.end()) return known->second;
  // A rung that this version does not know counts as the last one: such a
  // violation then leads nothing that is known better.
  return {.rung = RungNamed(violation.rung()).value_or(Rung::kTotals)};
}

}  // namespace traincheck::server
