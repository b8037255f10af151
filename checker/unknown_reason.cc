#include "checker/unknown_reason.h"

#include "absl/strings/ascii.h"

namespace traincheck {

namespace {

// As ProcessFacts::Name.
std::string UnplacedName(uint32_t process) {
  return "process " + std::to_string(process);
}
std::string RankName(int32_t rank) { return "rank " + std::to_string(rank); }

// Where the name stands in the text: "process 1" does not stand in "process
// 12".
size_t FindName(const std::string& text, const std::string& name, size_t from) {
  for (size_t at = text.find(name, from); at != std::string::npos;
       at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if (end == text.size() || !absl::ascii_isdigit(text[end])) return at;
  }
  return std::string::npos;
}

std::string Renamed(std::string text, const std::string& name,
                    const std::string& new_name) {
  for (size_t at = FindName(text, name, 0); at != std::string::npos;
       at = FindName(text, name, at + new_name.size())) {
    text.replace(at, name.size(), new_name);
  }
  return text;
}

// The least reason instead of the first one: which of them comes first depends
// on how the batches of ranks interleave.
void KeepLesser(const std::string& reason, std::string* least) {
  if (least->empty() || reason < *least) *least = reason;
}

}  // namespace

bool UnknownReason::Add(const Verdict& verdict) {
  if (verdict.reason.empty() || verdict.attempt < attempt_) return false;
  if (verdict.attempt > attempt_) {
    // What kept the rule from a verdict in an earlier attempt says nothing of
    // this one.
    *this = {};
    attempt_ = verdict.attempt;
  }
  const bool is_unplaced =
      verdict.process &&
      FindName(verdict.reason, UnplacedName(*verdict.process), 0) !=
          std::string::npos;
  KeepLesser(verdict.reason,
             is_unplaced ? &unplaced_[*verdict.process] : &least_);
  return is_unplaced;
}

void UnknownReason::Place(uint32_t process, int32_t rank) {
  const auto found = unplaced_.find(process);
  if (found == unplaced_.end()) return;
  KeepLesser(Renamed(found->second, UnplacedName(process), RankName(rank)),
             &least_);
  unplaced_.erase(found);
}

void UnknownReason::LeaveUnplaced(uint32_t process) {
  const auto found = unplaced_.find(process);
  if (found == unplaced_.end()) return;
  KeepLesser(found->second, &least_);
  unplaced_.erase(found);
}

std::string UnknownReason::Text() const {
  // What waits for a rank counts as it stands, so that an unknown rule has a
  // reason at each time that somebody asks.
  std::string least = least_;
  for (const auto& [process, reason] : unplaced_) KeepLesser(reason, &least);
  return least;
}

void UnknownReason::Fields(Archive& archive) {
  archive(attempt_, least_, unplaced_);
}

}  // namespace traincheck
