#include "invariants/traincheck/open_calls.h"

namespace traincheck {

bool OpenTraceCalls::HasLike(const Call& call) const {
  return !call.function->category.text().empty() &&
         alike_.contains(LikeOf(call));
}

void OpenTraceCalls::Push(OpenTraceCall call) {
  ids_.insert(call.id);
  ++alike_[LikeOf(call.call)];
  ++of_category_[call.call.function->category.number()];
  calls_.push_back(std::move(call));
}

void OpenTraceCalls::Pop() {
  const OpenTraceCall& call = calls_.back();
  ids_.erase(call.id);
  const auto alike = alike_.find(LikeOf(call.call));
  if (--alike->second == 0) alike_.erase(alike);
  --of_category_[call.call.function->category.number()];
  calls_.pop_back();
}

}  // namespace traincheck
