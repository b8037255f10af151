// Violations as people are shown them: what the checks found, and what people
// have said of it, marks and silences. Neither changes what is stored of a
// violation, so that a mark that is taken back or a silence that has ended
// leaves nothing behind.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_FEEDBACK_VIOLATION_VIEW_H_
#define TRAINCHECK_SERVER_FEEDBACK_VIOLATION_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/violation_board.h"
#include "server/feedback/marks.h"
#include "server/feedback/rule_places.h"
#include "server/feedback/silences.h"
#include "server/runs/registry.h"

namespace traincheck::server {

class ViolationView {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Registry* registry;
    const ViolationBoard* board;
    const Marks* marks;
    const Silences* silences;
    const RulePlaces* places;
  };

  explicit ViolationView(const Dependencies& dependencies)
      : use_(dependencies) {}

  using Violations = std::vector<v1::Violation>;

  // As ViolationBoard::List and Runs.
  [[nodiscard]] absl::StatusOr<Violations> List(const std::string& run) const;
  std::vector<std::string> Runs() const { return use_.board->Runs(); }
  // NotFound.
  [[nodiscard]] absl::StatusOr<v1::Violation> Find(const std::string& id) const;
  // The violation and, if it leads an incident, the others of it. NotFound.
  [[nodiscard]] absl::StatusOr<Violations> FindIncident(
      const std::string& id) const;

  // As ViolationBoard::ChangesAfter. Where a silence changes who leads an
  // incident, all of it comes with its first change, leads last: who follows
  // the stream knows to which incident each belongs.
  [[nodiscard]] absl::StatusOr<ViolationBoard::Changes> ChangesAfter(
      uint64_t after, const std::string& run, size_t limit) const;

  // The same, of all runs and by run, for those whom a run that cannot be read
  // must not keep from the others: it is there with its DataLoss.
  struct ChangedRuns {
    std::map<std::string, absl::StatusOr<Violations>> runs;
    uint64_t revision = 0;
  };
  [[nodiscard]] absl::StatusOr<ChangedRuns> ChangedRunsAfter(
      uint64_t after, size_t limit) const;

  // Adds what people have said to all violations of one run.
  [[nodiscard]] absl::Status Annotate(const std::string& run,
                                      Violations* violations) const;

 private:
  absl::Status AddMarks(Violations* violations) const;
  // To all violations of one run.
  void AddSilences(const std::vector<v1::Silence>& active,
                   const std::string& run, Violations* violations) const;

  const Dependencies use_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_VIOLATION_VIEW_H_
