// The open calls of a thread of a trace, innermost last. What is asked of them
// at each line is answered without a look at every one: a trace may have any
// number of calls without an end.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_OPEN_CALLS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_OPEN_CALLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

struct OpenTraceCall {
  std::string id;  // as the trace has it
  Call call;
  bool grad_enabled = true;  // for what it calls
};

class OpenTraceCalls {
 public:
  bool empty() const { return calls_.empty(); }
  size_t size() const { return calls_.size(); }
  // REQUIRES: not empty.
  const OpenTraceCall& back() const { return calls_.back(); }
  OpenTraceCall& back() { return calls_.back(); }

  bool Has(const std::string& id) const { return ids_.contains(id); }
  // One of the call's category on its object; false if it has no category.
  bool HasLike(const Call& call) const;
  bool Inside(CallCategory::Number category) const {
    return of_category_[category] > 0;
  }

  // REQUIRES: !Has(call.id), and it has a function.
  void Push(OpenTraceCall call);
  // REQUIRES: not empty.
  void Pop();

 private:
  using Like = std::pair<std::string, uint32_t>;  // category, object

  static Like LikeOf(const Call& call) {
    return {call.function->category.text(), call.object};
  }

  std::vector<OpenTraceCall> calls_;
  absl::flat_hash_set<std::string> ids_;
  absl::flat_hash_map<Like, uint64_t> alike_;
  std::array<uint64_t, CallCategory::kOther + 1> of_category_ = {};
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_OPEN_CALLS_H_
