// Where rules stand on the ladder of causes, for violations that come from the
// store: what is stored of them does not say all that the checker knew.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_FEEDBACK_RULE_PLACES_H_
#define TRAINCHECK_SERVER_FEEDBACK_RULE_PLACES_H_

#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "checker/incidents/ladder.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/sets/set_catalog.h"

namespace traincheck::server {

class RulePlaces {
 public:
  // `sets` must outlive the object.
  explicit RulePlaces(const SetCatalog* sets) : sets_(*sets) {}
  RulePlaces(const RulePlaces&) = delete;
  RulePlaces& operator=(const RulePlaces&) = delete;

  // Of the violation's rule, which is one of `selection` (ParseSelection). The
  // first question reads these sets; a rule that they do not have any more has
  // the rung that the violation names.
  Place Of(const v1::Violation& violation, const std::string& selection) const;

 private:
  void Read(const std::string& selection) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SetCatalog& sets_;
  mutable absl::Mutex mutex_;
  // By rule: its id is a hash of what it says, so that its place never changes.
  mutable std::map<std::string, Place> places_ ABSL_GUARDED_BY(mutex_);
  mutable std::set<std::string> read_ ABSL_GUARDED_BY(mutex_);  // selections
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_FEEDBACK_RULE_PLACES_H_
