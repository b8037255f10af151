// One client that watches violations, from the call to its end.
//
// Threads: one thread, which sleeps while nothing happens.
#ifndef TRAINCHECK_SERVER_CONTROL_VIOLATION_WATCH_H_
#define TRAINCHECK_SERVER_CONTROL_VIOLATION_WATCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/access/gate_service.h"
#include "server/access/sight.h"
#include "server/checking/change_bells.h"
#include "server/control/queries.h"
#include "server/feedback/violation_view.h"

namespace traincheck::server {

class ViolationWatch {
 public:
  // All must outlive the object. Once `stopping` is true, the bells ring.
  struct Dependencies {
    const Queries* queries;
    const ViolationView* violations;
    ChangeBells* bells;
    const Gate* gate;
    const std::atomic<bool>* stopping;
  };
  // Both are called on the thread of Serve.
  struct Client {
    // False: it has left.
    std::function<bool(const v1::Violation&)> send;
    std::function<bool()> has_left;
  };

  // `run`: empty, all that the caller sees.
  ViolationWatch(const Dependencies& dependencies, std::string run, Sight sight)
      : use_(dependencies),
        run_(std::move(run)),
        sight_(std::move(sight)),
        bell_(use_.bells, run_) {}

  // Sends what is there and what comes, until the run is over, the client has
  // left or may not see it any more.
  absl::Status Serve(const Client& client);

 private:
  // False: that was all.
  absl::StatusOr<bool> Look(const Client& client);
  // Returns when there may be something to look at, or the client has left.
  void Sleep(const Client& client);

  const Dependencies use_;
  const std::string run_;
  Sight sight_;
  ChangeBells::Bell bell_;
  uint64_t seen_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_VIOLATION_WATCH_H_
