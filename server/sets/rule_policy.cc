#include "server/sets/rule_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/sets/human_text.h"
#include "server/store/keys.h"
#include "server/store/named_entries.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
// Of all entries of a kind.
constexpr size_t kMaxEntries = 1000;

template <typename Entry>
// In the order of their names, as lists show them.
std::vector<Entry> Values(const std::map<std::string, Entry>& entries) {
  std::vector<Entry> values;
  for (const auto& [name, entry] : entries) values.push_back(entry);
  return values;
}

// As ParseSelection gives them: the text of a selection is the same whatever
// the order of decisions.
void SortOnce(std::vector<std::string>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// Adds what `more` names to `sets`; a set that is named there stays as it is.
void AddSets(const v1::Deployment& more, std::vector<SetRef>* sets) {
  for (const std::string& text : more.sets()) {
    const absl::StatusOr<SetRef> set = ParseSetRef(text);
    if (!set.ok()) continue;  // it was looked at when it was deployed
    const bool named = std::any_of(
        sets->begin(), sets->end(),
        [&](const SetRef& other) { return other.name == set->name; });
    // A run that asks for another version of a deployed set gets the one that
    // it asked for.
    if (!named) sets->push_back(*set);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RulePolicy>> RulePolicy::Load(
    Store* store, const SetCatalog* sets) {
  std::unique_ptr<RulePolicy> policy(new RulePolicy(store, sets));
  if (absl::Status s = policy->Read(); !s.ok()) return s;
  return policy;
}

absl::Status RulePolicy::Read() {
  absl::MutexLock lock(&mutex_);
  absl::Status read = ReadEntries(store_, kDisabledPrefix, &disabled_);
  if (!read.ok()) return read;
  read = ReadEntries(store_, kDemotedPrefix, &demoted_);
  if (!read.ok()) return read;
  return ReadEntries(store_, kDeployedPrefix, &deployed_);
}

absl::StatusOr<v1::DisabledRule> RulePolicy::Disable(
    const std::string& id, const std::string& reason) {
  if (absl::Status s = CheckHumanText("the reason", reason); !s.ok()) return s;
  // A mistyped id would disable nothing, and nobody would notice.
  const absl::StatusOr<v1::Invariant> rule = sets_.FindInvariant(id);
  if (!rule.ok()) return rule.status();
  v1::DisabledRule disabled;
  disabled.set_rule(id);
  disabled.set_text(rule->text());
  disabled.set_reason(reason);
  disabled.set_since_unix_ns(absl::ToUnixNanos(absl::Now()));
  absl::MutexLock changing(&changing_);
  {
    absl::MutexLock lock(&mutex_);
    if (disabled_.size() >= kMaxEntries && !disabled_.contains(id)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(kMaxEntries, " rules are disabled, which is the limit"));
    }
  }
  WriteSet writes;
  writes.Put(Table::kMeta, absl::StrCat(kDisabledPrefix, id),
             disabled.SerializeAsString());
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [this, disabled] {
        spdlog::info("rule is disabled rule={} reason={}", disabled.rule(),
                     QuotePrintable(disabled.reason()));
        // Known only when it is durable, so that a rule that is disabled stays
        // so after a restart.
        absl::MutexLock lock(&mutex_);
        disabled_[disabled.rule()] = disabled;
      },
      kPatience);
  if (!written.ok()) return written;
  return disabled;
}

absl::StatusOr<v1::DisabledRule> RulePolicy::Enable(const std::string& id) {
  absl::MutexLock changing(&changing_);
  v1::DisabledRule was;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = disabled_.find(id);
    if (found == disabled_.end()) {
      return absl::NotFoundError(
          absl::StrCat("rule \"", EscapeUnprintable(id),
                       "\" is not disabled: see traincheckctl sets disabled"));
    }
    was = found->second;
  }
  WriteSet writes;
  writes.Delete(Table::kMeta, absl::StrCat(kDisabledPrefix, id));
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [this, id] {
        spdlog::info("rule is enabled rule={}", id);
        absl::MutexLock lock(&mutex_);
        disabled_.erase(id);
      },
      kPatience);
  if (!written.ok()) return written;
  return was;
}

std::vector<v1::DisabledRule> RulePolicy::Disabled() const {
  absl::MutexLock lock(&mutex_);
  return Values(disabled_);
}

// Sets are looked up before anything is stored: a deployment of a set that is
// not there would make every run of the experiment wait for it.
absl::StatusOr<v1::Deployment> RulePolicy::Deploy(
    const std::string& experiment, const std::vector<std::string>& sets) {
  absl::Status named = CheckHumanText("the name of the experiment", experiment);
  if (!named.ok()) return named;
  v1::Deployment deployment;
  deployment.set_experiment(experiment);
  deployment.set_since_unix_ns(absl::ToUnixNanos(absl::Now()));
  for (const std::string& set : sets) {
    const absl::StatusOr<v1::SetDetail> found = sets_.Detail(set);
    if (!found.ok()) return found.status();
    deployment.add_sets(set);
  }
  absl::MutexLock changing(&changing_);
  {
    absl::MutexLock lock(&mutex_);
    if (deployed_.size() >= kMaxEntries && !deployed_.contains(experiment)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "sets are deployed for ", kMaxEntries, " experiments, the limit"));
    }
  }
  const std::string key = absl::StrCat(kDeployedPrefix, experiment);
  WriteSet writes;
  if (sets.empty()) {
    writes.Delete(Table::kMeta, key);
  } else {
    writes.Put(Table::kMeta, key, deployment.SerializeAsString());
  }
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [this, deployment] {
        spdlog::info("sets are deployed experiment={} sets={}",
                     QuotePrintable(deployment.experiment()),
                     deployment.sets_size());
        absl::MutexLock lock(&mutex_);
        if (deployment.sets().empty()) {
          deployed_.erase(deployment.experiment());
        } else {
          deployed_[deployment.experiment()] = deployment;
        }
      },
      kPatience);
  if (!written.ok()) return written;
  return deployment;
}

std::vector<v1::Deployment> RulePolicy::Deployments() const {
  absl::MutexLock lock(&mutex_);
  return Values(deployed_);
}

// A set that is deployed is not deleted (DeleteSet).
std::vector<std::string> RulePolicy::DeployedFor(const std::string& set) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> experiments;
  for (const auto& [experiment, deployment] : deployed_) {
    std::vector<SetRef> sets;
    AddSets(deployment, &sets);
    if (std::any_of(sets.begin(), sets.end(),
                    [&](const SetRef& one) { return one.name == set; })) {
      experiments.push_back(experiment);
    }
  }
  return experiments;
}

// Rules that healthy runs of the owner break become advice in the owner's next
// runs. Runs that go on keep the rules that they began with.
absl::Status RulePolicy::Demote(const std::string& owner,
                                const std::vector<v1::RuleRecord>& rules) {
  v1::SetReview demoted;
  // Those with most against them come first.
  for (const v1::RuleRecord& rule : rules) {
    if (static_cast<size_t>(demoted.rules_size()) == kMaxDemoted) break;
    *demoted.add_rules() = rule;
  }
  absl::MutexLock changing(&changing_);
  {
    absl::MutexLock lock(&mutex_);
    // Each mark asks for it, and most change nothing.
    if (demoted.SerializeAsString() == demoted_[owner].SerializeAsString()) {
      return absl::OkStatus();
    }
  }
  WriteSet writes;
  writes.Put(Table::kMeta, absl::StrCat(kDemotedPrefix, owner),
             demoted.SerializeAsString());
  return store_.WriteAndApply(
      std::move(writes),
      [this, owner, demoted] {
        for (const v1::RuleRecord& rule : demoted.rules()) {
          spdlog::info(
              "violations of a rule are advice owner={} rule={} violated={} "
              "healthy_runs={}",
              QuotePrintable(owner), rule.rule(), rule.violated_runs(),
              rule.decided_runs());
        }
        absl::MutexLock lock(&mutex_);
        demoted_[owner] = demoted;
      },
      kPatience);
}

// Called under the registry's lock when a run begins, and by clients that ask
// what a run would be checked against. It waits for no write.
std::string RulePolicy::SelectionFor(const std::string& experiment,
                                     const std::string& owner,
                                     const std::string& asked) const {
  RuleSelection selection;
  if (!asked.empty()) {
    absl::StatusOr<RuleSelection> parsed = ParseSelection(asked);
    // The run's check says what is wrong with it: to drop the text here would
    // let the run pass unchecked.
    if (!parsed.ok()) return asked;
    selection = *std::move(parsed);
  }
  absl::MutexLock lock(&mutex_);
  const auto deployed = deployed_.find(experiment);
  if (deployed != deployed_.end()) AddSets(deployed->second, &selection.sets);
  // Nothing is asked for and nothing deployed: without a set the rules that are
  // disabled or demoted mean nothing.
  if (selection.sets.empty()) return "";
  Apply(owner, &selection);
  for (SetRef& set : selection.sets) {
    // Still 0 for a set that is not there: the run waits for it (LiveCheck).
    if (set.version == 0) set.version = sets_.NewestVersion(set.name);
  }
  return ToText(selection);
}

std::string RulePolicy::AsDecided(const std::string& owner,
                                  const std::string& asked) const {
  absl::StatusOr<RuleSelection> selection = ParseSelection(asked);
  if (!selection.ok()) return asked;
  absl::MutexLock lock(&mutex_);
  Apply(owner, &*selection);
  return ToText(*selection);
}

void RulePolicy::Apply(const std::string& owner,
                       RuleSelection* selection) const {
  // All of them, also those that no set of the run has: a set without a version
  // may have them once it is saved.
  for (const auto& [id, rule] : disabled_) selection->without.push_back(id);
  SortOnce(&selection->without);
  const auto demoted = demoted_.find(owner);
  if (demoted == demoted_.end()) return;
  for (const v1::RuleRecord& rule : demoted->second.rules()) {
    selection->advised.push_back(rule.rule());
  }
  SortOnce(&selection->advised);
}

}  // namespace traincheck::server
