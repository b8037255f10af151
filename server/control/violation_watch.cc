#include "server/control/violation_watch.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "server/control/limits.h"

namespace traincheck::server {
namespace {

// gRPC says nothing of its own accord of a client that has left, and its place
// is another one's.
constexpr absl::Duration kLookForClient = absl::Seconds(2);
// The bells ring at the end of a run's check, which counts as finished a moment
// later: its worker has to turn away from it first.
constexpr absl::Duration kFirstLookForEnd = absl::Milliseconds(20);

}  // namespace

absl::Status ViolationWatch::Serve(const Client& client) {
  while (!client.has_left()) {
    const absl::StatusOr<bool> goes_on = Look(client);
    if (!goes_on.ok()) return goes_on.status();
    if (!*goes_on) break;
    Sleep(client);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ViolationWatch::Look(const Client& client) {
  while (!client.has_left()) {
    if (*use_.stopping) {
      return absl::UnavailableError("traincheckd is stopping");
    }
    // A run that had not begun may be another's, and tokens are revoked.
    sight_.LookAnew();
    absl::Status may = use_.gate->CheckStillValid(sight_.caller());
    if (may.ok()) may = sight_.CheckRun(run_);
    if (!may.ok()) return may;
    // Asked before reading, so that what is there when it is over is sent.
    const bool over = !run_.empty() && use_.queries->IsOver(run_);
    const absl::StatusOr<ViolationBoard::Changes> changes =
        use_.violations->ChangesAfter(seen_, run_, kMaxChanges);
    if (!changes.ok()) return changes.status();
    seen_ = changes->revision;
    for (const v1::Violation& violation : changes->violations) {
      if (sight_.Sees(violation) && !client.send(violation)) return false;
    }
    // A page that is full is followed by the next one at once, also where the
    // run is over.
    if (changes->complete) return !over;
  }
  return false;
}

void ViolationWatch::Sleep(const Client& client) {
  // Nobody rings when a token expires, so the sleep ends with it and the next
  // look breaks the call off.
  const absl::Time expiry = use_.gate->ExpiryOf(sight_.caller());
  absl::Duration look_for_end = kFirstLookForEnd;
  while (!client.has_left()) {
    const bool ended = !run_.empty() && use_.queries->HasEnded(run_);
    const absl::Duration patience = ended ? look_for_end : kLookForClient;
    if (bell_.Wait(std::min(absl::Now() + patience, expiry))) return;
    if (absl::Now() >= expiry) return;
    if (ended && use_.queries->IsOver(run_)) return;
    // Ever more seldom: a check that is far behind may take hours, and rings
    // for what it finds.
    look_for_end = std::min(2 * look_for_end, kLookForClient);
  }
}

}  // namespace traincheck::server
