// What one caller may know of: runs, and what hangs on them. To others a run
// is as if it were not there.
//
// Threads: a plain value; one thread at a time.
#ifndef TRAINCHECK_SERVER_ACCESS_SIGHT_H_
#define TRAINCHECK_SERVER_ACCESS_SIGHT_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/access/caller.h"
#include "server/runs/registry.h"

namespace traincheck::server {

class Sight {
 public:
  // `registry` must outlive the object.
  Sight(Caller caller, const Registry* registry)
      : caller_(std::move(caller)), registry_(*registry) {}

  const Caller& caller() const { return caller_; }

  // What was seen before counts no more: a run that was deleted gives its id
  // free to others. For calls that stay.
  void LookAnew() { seen_.clear(); }

  // Also if there is no such run.
  bool SeesRun(const std::string& run);
  // OK, or NotFound as for a run that is not there.
  [[nodiscard]] absl::Status CheckRun(const std::string& run);
  bool Sees(const v1::Run& run) const { return caller_.Sees(run.owner()); }
  bool Sees(const v1::Job& job) const { return caller_.Sees(job.owner()); }
  bool Sees(const v1::Violation& violation) { return SeesRun(violation.run()); }

  // Leaves out what the caller does not see.
  template <typename List>
  void Filter(List* list) {
    if (caller_.is_admin()) return;
    std::erase_if(*list, [&](const auto& entry) { return !Sees(entry); });
  }

 private:
  const Caller caller_;
  const Registry& registry_;
  std::map<std::string, bool> seen_;  // by run
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_SIGHT_H_
