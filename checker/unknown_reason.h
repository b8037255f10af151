// Why a rule, or some window of it, is unknown: the least reason of the newest
// attempt, which does not depend on the order in which reasons come. A process
// has one name in it: a reason that names a process before its rank is known is
// kept apart until it can name the rank.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_UNKNOWN_REASON_H_
#define TRAINCHECK_CHECKER_UNKNOWN_REASON_H_

#include <cstdint>
#include <map>
#include <string>

#include "invariants/rules/relation.h"
#include "invariants/trace/archive.h"

namespace traincheck {

class UnknownReason {
 public:
  // REQUIRES: the verdict's outcome is kUnknown. True: its reason names the
  // verdict's process, whose rank was not known.
  bool Add(const Verdict& verdict);
  // The process is this rank.
  void Place(uint32_t process, int32_t rank);
  // Its rank will not be known any more.
  void LeaveUnplaced(uint32_t process);

  bool empty() const { return least_.empty() && unplaced_.empty(); }
  // "": there is none.
  std::string Text() const;
  // That it is from.
  uint32_t attempt() const { return attempt_; }

  void Fields(Archive& archive);

 private:
  uint32_t attempt_ = 0;
  std::string least_;
  std::map<uint32_t, std::string> unplaced_;  // the least by process
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_UNKNOWN_REASON_H_
