// What people have said of violations: that they were right or false alarms.
// A mark lies in the store under its run and is deleted with it; a check that
// begins anew finds the same violations, and their marks.
//
// Threads: safe on any thread. What a call changes is durable when it returns.
#ifndef TRAINCHECK_SERVER_FEEDBACK_MARKS_H_
#define TRAINCHECK_SERVER_FEEDBACK_MARKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "server/store/store.h"

namespace traincheck::server {

inline constexpr char kConfirmed[] = "confirmed";
inline constexpr char kFalseAlarm[] = "false-alarm";
// In requests: takes back what was said.
inline constexpr char kNoMark[] = "none";

class Marks {
 public:
  // By violation.
  using OfRun = std::map<std::string, v1::Mark>;

  // `store` must outlive the object.
  explicit Marks(Store* store) : store_(*store) {}
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // `run`: its number in the store. DataLoss.
  [[nodiscard]] absl::StatusOr<OfRun> Of(uint64_t run) const;

  // Marks the violation that is named, the first of `incident`, and the others
  // of it, unless they have a mark of their own; or takes
  // back what was marked so. InvalidArgument saying what is wrong,
  // FailedPrecondition if there is nothing to take back. REQUIRES: all are of
  // run number `run`.
  [[nodiscard]] absl::StatusOr<v1::MarkViolationReply> SetUntrusted(
      uint64_t run, const v1::MarkViolationRequest& request,
      const std::vector<v1::Violation>& incident);

 private:
  absl::StatusOr<v1::MarkViolationReply> Give(
      uint64_t run, const v1::MarkViolationRequest& request,
      const std::vector<v1::Violation>& incident);
  absl::StatusOr<v1::MarkViolationReply> TakeBack(uint64_t run,
                                                  const std::string& violation);

  Store& store_;
  absl::Mutex changing_;  // one change at a time: each reads before it writes
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_MARKS_H_
