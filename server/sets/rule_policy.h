// What is decided about rules and sets on this daemon: rules that are checked
// nowhere, rules that advise an owner's runs because healthy ones broke them,
// and sets that runs of an experiment are checked against without asking.
//
// The store must be closed before the object is destroyed.
//
// Threads: safe on any thread. What a call changes is durable when it returns;
// where the disk is too slow for that, the call returns Unavailable and the
// change holds once it is durable.
#ifndef TRAINCHECK_SERVER_SETS_RULE_POLICY_H_
#define TRAINCHECK_SERVER_SETS_RULE_POLICY_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "invariants/sets/set_ref.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

class RulePolicy {
 public:
  // Both must outlive the object.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RulePolicy>> Load(
      Store* store, const SetCatalog* sets);
  RulePolicy(const RulePolicy&) = delete;
  RulePolicy& operator=(const RulePolicy&) = delete;

  // From now on runs that begin are not checked against the rule `id`, whatever
  // set has it. NotFound if no set has it, InvalidArgument for a reason that is
  // empty or too long: somebody will want to know.
  [[nodiscard]] absl::StatusOr<v1::DisabledRule> Disable(
      const std::string& id, const std::string& reason);
  // NotFound if it is not disabled.
  [[nodiscard]] absl::StatusOr<v1::DisabledRule> Enable(const std::string& id);
  // By rule.
  std::vector<v1::DisabledRule> Disabled() const;

  // From now on runs of `experiment` that begin are checked against `sets`
  // (NAME or NAME@VERSION), too; this replaces what was deployed for it. None:
  // nothing is deployed any more. NotFound for a set that is not there.
  [[nodiscard]] absl::StatusOr<v1::Deployment> Deploy(
      const std::string& experiment, const std::vector<std::string>& sets);
  // By experiment.
  std::vector<v1::Deployment> Deployments() const;
  // Experiments for which it is deployed.
  std::vector<std::string> DeployedFor(const std::string& set) const;

  // From now on violations of these rules (at most kMaxDemoted, the first) are
  // advice in runs of `owner` that begin; this replaces what was demoted for
  // it.
  static constexpr size_t kMaxDemoted = 64;
  [[nodiscard]] absl::Status Demote(const std::string& owner,
                                    const std::vector<v1::RuleRecord>& rules);

  // What a run of `experiment` and `owner` that asks for the selection `asked`
  // ("": none) is checked against: that and what is deployed for the
  // experiment, without what is disabled, and with what is demoted as advice.
  // Each set that is there has its newest version: a check that begins later,
  // or again, is by the same rules. A text that is not a selection stays as it
  // is: whoever reads it says why.
  std::string SelectionFor(const std::string& experiment,
                           const std::string& owner,
                           const std::string& asked) const;
  // The same without what is deployed.
  std::string AsDecided(const std::string& owner,
                        const std::string& asked) const;

 private:
  RulePolicy(Store* store, const SetCatalog* sets)
      : store_(*store), sets_(*sets) {}
  absl::Status Read();
  void Apply(const std::string& owner, RuleSelection* selection) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store& store_;
  const SetCatalog& sets_;
  // One change at a time. Taken before the other one, which is not held while
  // the disk is waited for: every run that begins takes it under the registry's
  // lock, which the store's commit thread needs.
  absl::Mutex changing_;
  mutable absl::Mutex mutex_;
  std::map<std::string, v1::DisabledRule> disabled_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::Deployment> deployed_ ABSL_GUARDED_BY(mutex_);
  // By owner; of a review only its rules.
  std::map<std::string, v1::SetReview> demoted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_RULE_POLICY_H_
