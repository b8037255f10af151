// Where records of one process are missing.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_GAPS_H_
#define TRAINCHECK_INVARIANTS_FACTS_GAPS_H_

#include <cstdint>
#include <string>

#include "invariants/trace/archive.h"

namespace traincheck {

class Gaps {
 public:
  void OnGap(const std::string& reason) {
    ++count_;
    reason_ = reason;
  }

  // So far; windows compare it between their open and close.
  uint64_t count() const { return count_; }
  // Of the last one, in the reader's words.
  const std::string& reason() const { return reason_; }

  void Fields(Archive& archive) { archive(count_, reason_); }

 private:
  uint64_t count_ = 0;
  std::string reason_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_GAPS_H_
