// Silences: what people do not want to be alerted of, by rule, relation,
// variables and experiment, for a time or until they take it back. A violation
// that one covers is recorded and found as ever.
//
// The store must be closed before the object is destroyed.
//
// Threads: safe on any thread. What a call changes is durable when it returns;
// where the disk is too slow for that, the call returns Unavailable and the
// change holds once it is durable.
#ifndef TRAINCHECK_SERVER_FEEDBACK_SILENCES_H_
#define TRAINCHECK_SERVER_FEEDBACK_SILENCES_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

// Does the silence, which has not ended, cover a violation of a run of this
// experiment? What it does not name may be anything. A pattern covers what is
// about fitting variables only: each of them, or the parameter whose optimizer
// state it is ("weight" of "weight/exp_avg").
bool Covers(const v1::Silence& silence, const v1::Violation& violation,
            const std::string& experiment);

// Violation::silenced_by of what the silence covers, and the silence's id of
// that; "": none does.
std::string SilencedBy(const v1::Silence& silence);
std::string SilenceOf(const v1::Violation& violation);

class Silences {
 public:
  using Clock = std::function<absl::Time()>;

  // Both must outlive the object.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Silences>> Load(
      Store* store, const SetCatalog* sets, Clock now = absl::Now);
  Silences(const Silences&) = delete;
  Silences& operator=(const Silences&) = delete;

  // Gives it an id. InvalidArgument if it covers everything, ends in the past,
  // says nothing of why, or has bytes that people cannot read; NotFound, with
  // the nearest that is, for a rule that no set has and a relation that is not
  // one.
  [[nodiscard]] absl::StatusOr<v1::Silence> AddUntrusted(v1::Silence silence);
  [[nodiscard]] absl::StatusOr<v1::Silence> Remove(const std::string& id);
  // The oldest first, those that have ended among them.
  std::vector<v1::Silence> List() const;
  // Without those; what lasts longest first.
  std::vector<v1::Silence> Active() const;

 private:
  Silences(Store* store, const SetCatalog* sets, Clock now)
      : store_(*store), sets_(*sets), now_(std::move(now)) {}
  absl::Status Check(const v1::Silence& silence) const;
  absl::Status CheckRule(const std::string& id) const;
  std::string NewId(const v1::Silence& silence) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store& store_;
  const SetCatalog& sets_;
  const Clock now_;
  // One change at a time. Taken before the other one, which readers need and
  // which is not held while the disk is waited for.
  absl::Mutex changing_;
  mutable absl::Mutex mutex_;
  std::map<std::string, v1::Silence> by_id_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_SILENCES_H_
