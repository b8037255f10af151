// Brings to the daemon what a dead process's relay left in a spool file.
//
// Owned by whoever took the file over. Threads: externally synchronised. It is
// told the time.
#ifndef TRAINCHECK_AGENT_RELAY_ORPHAN_DELIVERY_H_
#define TRAINCHECK_AGENT_RELAY_ORPHAN_DELIVERY_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/relay/compressor.h"
#include "agent/relay/delivery.h"
#include "agent/relay/outbox.h"
#include "agent/relay/spool_load.h"

namespace traincheck::agent {

// May a spool file be delivered by somebody who did not write it?
enum class SpoolFate {
  kLeft,     // nobody else will
  kInUse,    // its process may live
  kDamaged,  // it has no valid beginning
  kGone,     // whoever had it has delivered it
  kUnreadable,
};
struct SpoolVerdict {
  SpoolFate fate = SpoolFate::kLeft;
  std::string why;  // not for kLeft
};
// `unix_seconds`: now, to see how long nothing was written. `owner`: what
// ReadSpoolOwner says of it, now or, if it was OK, once.
SpoolVerdict JudgeSpool(const std::string& path,
                        const absl::StatusOr<SpoolOwner>& owner,
                        int64_t unix_seconds);

class OrphanDelivery {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Dependencies {
    std::shared_ptr<grpc::Channel> channel;
    std::function<void()> wake;
    Compressor* compressor = nullptr;
  };
  OrphanDelivery(const Dependencies& dependencies, LoadedSpool loaded,
                 TimePoint now);
  OrphanDelivery(const OrphanDelivery&) = delete;
  OrphanDelivery& operator=(const OrphanDelivery&) = delete;

  // Moves on; deletes the file once all of it is delivered.
  void Turn(TimePoint now);

  // All is delivered and the file is gone.
  bool done() const { return done_; }
  // The server will not have it, now or ever: `last_error` says why.
  bool refused() const {
    return delivery_.refused() ||
           (delivery_.unwelcome() && !delivery_.awaits_token());
  }
  // A stream is open.
  bool open() const { return delivery_.open(); }
  // Nothing has moved for kOrphanPatience.
  bool stuck(TimePoint now) const;
  const absl::Status& last_error() const { return delivery_.last_error(); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  Outbox outbox_;
  Delivery delivery_;
  bool done_ = false;
  size_t held_ = 0;
  bool was_open_ = false;
  TimePoint moved_at_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_ORPHAN_DELIVERY_H_
