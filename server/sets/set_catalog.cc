#include "server/sets/set_catalog.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "invariants/rules/rule_notes.h"
#include "invariants/sets/set_json.h"
#include "invariants/sets/set_merge.h"
#include "invariants/sets/set_ref.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

constexpr size_t kMaxNameBytes = 64;
constexpr absl::Duration kPatience = absl::Seconds(10);

// Characters that need no quotes in a shell and divide no selection
// ("A@1,B@2").
bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
}

void LeaveOut(const std::vector<std::string>& ids, InvariantSet* set) {
  std::erase_if(set->invariants, [&](const Invariant& invariant) {
    // ParseSelection gives the ids in order.
    return std::binary_search(ids.begin(), ids.end(), invariant.id);
  });
}

void Advise(const std::vector<std::string>& ids, InvariantSet* set) {
  for (Invariant& invariant : set->invariants) {
    if (std::binary_search(ids.begin(), ids.end(), invariant.id)) {
      MakeAdvice(&invariant.origin);
    }
  }
}

absl::StatusOr<v1::SetDetail> Parse(std::string_view value) {
  v1::SetDetail detail;
  if (!detail.ParseFromArray(value.data(), value.size())) {
    return absl::DataLossError("a stored set does not parse");
  }
  return detail;
}

// `current`: whose it is, nothing if nobody has it.
absl::Status CheckWriter(const std::string& name,
                         const std::optional<std::string>& current,
                         const std::string& owner) {
  if (owner.empty() || !current.has_value() || *current == owner) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "set ", name, " belongs to another owner: give this one another name"));
}

}  // namespace

absl::Status CheckSetName(const std::string& name) {
  if (name == kBuiltInSet) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", name,
        "\" is the daemon's built-in set: give this one another name"));
  }
  if (!name.empty() && name.size() <= kMaxNameBytes && name[0] != '-' &&
      std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(name.substr(0, kMaxNameBytes)),
                   "\" is not a name for a set: use 1 to ", kMaxNameBytes,
                   " letters, digits and . _ -, none of - in front"));
}

// Clients need no parser of rules: what they show stands beside the JSON.
v1::Invariant ToApi(const Invariant& invariant) {
  v1::Invariant api;
  api.set_id(invariant.id);
  api.set_relation(invariant.rule->relation_name());
  api.set_text(invariant.text);
  api.set_scope(invariant.scope == Scope::kGeneral ? "general" : "experiment");
  api.set_support(invariant.support);
  api.set_json(ToJson(invariant).dump());
  return api;
}

// Names the version, so that a check that goes on after a restart is by the
// same rules.
std::string ReferenceTo(const InvariantSet& set) {
  return ToText(SetRef{set.name, set.version});
}

absl::StatusOr<std::optional<std::string>> SetCatalog::OwnerOf(
    const std::string& name) const {
  const auto newest = index_->NewestOf(name);
  if (!newest.ok()) return newest.status();
  if (!newest->has_value()) return std::nullopt;
  return (*newest)->owner();
}

absl::Status SetCatalog::CheckOwner(const std::string& name,
                                    const std::string& owner) const {
  if (owner.empty()) return absl::OkStatus();
  const absl::StatusOr<std::optional<std::string>> current = OwnerOf(name);
  return current.ok() ? CheckWriter(name, *current, owner) : current.status();
}

absl::StatusOr<v1::SetSummary> SetCatalog::Save(InvariantSet set,
                                                const Companion& companion,
                                                const std::string& owner) {
  absl::MutexLock lock(&saving_);
  const absl::StatusOr<std::optional<std::string>> current = OwnerOf(set.name);
  if (!current.ok()) return current.status();
  if (absl::Status s = CheckWriter(set.name, *current, owner); !s.ok()) {
    return s;
  }
  const absl::StatusOr<uint32_t> last = LastVersion(set.name);
  if (!last.ok()) return last.status();
  set.version = *last + 1;
  v1::SetDetail stored;
  v1::SetSummary& summary = *stored.mutable_summary();
  summary.set_name(set.name);
  summary.set_version(set.version);
  summary.set_invariants(set.invariants.size());
  summary.set_created_unix_ns(set.created_unix_ns);
  // An administrator who saves a version does not take the set over.
  summary.set_owner(current->value_or(owner));
  for (const std::string& run : set.runs) summary.add_runs(run);
  stored.set_json(ToJson(set).dump());
  WriteSet writes;
  writes.Put(Table::kSets, SetKey(set.name, set.version),
             stored.SerializeAsString());
  // Before the write: what a job notes about its set becomes durable with it.
  if (companion) companion(summary, &writes);
  // Also if nobody waits for it to the end: the next version has another
  // number.
  given_[set.name] = set.version;
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      // On the commit thread and with a share of the index: the write may
      // become durable after the wait for it was given up.
      [index = index_, summary = stored.summary(), observer = observer_] {
        index->Add(summary);
        // Behind the write, so that a check that is woken by it finds the set.
        if (observer) observer(summary.name());
      },
      kPatience);
  if (!written.ok()) return written;
  return summary;
}

// A set from a file: any JSON, of any version. Its name is a person's, so the
// name of the built-in set is refused.
absl::StatusOr<v1::SetSummary> SetCatalog::ImportUntrusted(
    const std::string& name, const std::string& json,
    const std::string& owner) {
  absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(json);
  if (!set.ok()) return set.status();
  if (!name.empty()) set->name = name;
  if (absl::Status s = CheckSetName(set->name); !s.ok()) return s;
  set->created_unix_ns = absl::ToUnixNanos(absl::Now());
  return Save(*std::move(set), nullptr, owner);
}

// Whether a run or a deployment needs the set is the caller's question
// (DeleteSet).
absl::StatusOr<std::vector<uint32_t>> SetCatalog::Delete(
    const std::string& text, const std::string& owner) {
  absl::MutexLock lock(&saving_);
  const absl::StatusOr<SetRef> ref = ParseSetRef(text);
  if (!ref.ok()) return ref.status();
  if (ref->name == kBuiltInSet) {
    return absl::InvalidArgumentError(
        "the built-in rules belong to the daemon and stay: leave them out of a "
        "run with --no-builtin, or disable single rules");
  }
  if (absl::Status s = CheckOwner(ref->name, owner); !s.ok()) return s;
  // For its NotFound: to delete what is not there would write a last version
  // for a name that nobody has.
  if (const auto found = Read(ref->name, ref->version); !found.ok()) {
    return found.status();
  }
  const absl::StatusOr<uint32_t> last = LastVersion(ref->name);
  if (!last.ok()) return last.status();
  absl::StatusOr<std::vector<uint32_t>> versions =
      index_->VersionsOf(ref->name);
  if (!versions.ok()) return versions.status();
  if (ref->version != 0) versions = std::vector{ref->version};
  WriteSet writes;
  for (const uint32_t version : *versions) {
    writes.Delete(Table::kSets, SetKey(ref->name, version));
  }
  // In the same write: a number that was given names the same rules for ever.
  writes.Put(Table::kMeta, absl::StrCat(kLastVersionPrefix, ref->name),
             absl::StrCat(*last));
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [index = index_, name = ref->name, versions = *versions] {
        for (const uint32_t version : versions) index->Remove(name, version);
      },
      kPatience);
  if (!written.ok()) return written;
  return versions;
}

// The index in memory answers, since this is asked under the registry's lock
// (RulePolicy::SelectionFor). Only the first question of all reads the store.
uint32_t SetCatalog::NewestVersion(const std::string& name) const {
  const auto newest = index_->NewestOf(name);
  return newest.ok() && newest->has_value() ? (*newest)->version() : 0;
}

absl::StatusOr<uint32_t> SetCatalog::LastVersion(
    const std::string& name) const {
  const auto newest = index_->NewestOf(name);
  if (!newest.ok()) return newest.status();
  const uint32_t there = newest->has_value() ? (*newest)->version() : 0;
  const absl::StatusOr<std::optional<std::string>> noted =
      store_.Get(Table::kMeta, absl::StrCat(kLastVersionPrefix, name));
  if (!noted.ok()) return noted.status();
  uint32_t deleted = 0;
  if (noted->has_value() && !absl::SimpleAtoi(**noted, &deleted)) {
    return absl::DataLossError(absl::StrCat("the stored version number of set ",
                                            name, " does not parse"));
  }
  const auto given = given_.find(name);
  // The newest one may be deleted, with its number noted, or not be there yet.
  return std::max({there, deleted, given == given_.end() ? 0 : given->second});
}

absl::StatusOr<v1::SetDetail> SetCatalog::Find(const std::string& set,
                                               uint32_t version) const {
  const absl::StatusOr<SetRef> ref = ParseSetRef(set);
  if (!ref.ok()) return ref.status();
  return Read(ref->name, ref->version != 0 ? ref->version : version);
}

// The stored form, not parsed: callers that only list, delete or hand on a set
// need not read its rules.
absl::StatusOr<v1::SetDetail> SetCatalog::Read(const std::string& name,
                                               uint32_t version) const {
  uint32_t exact = version;
  if (version == 0) {
    const auto newest = index_->NewestOf(name);
    if (!newest.ok()) return newest.status();
    // Version 0 is never given, so a name without versions leads to NotFound
    // below.
    if (newest->has_value()) exact = (*newest)->version();
  }
  const absl::StatusOr<std::optional<std::string>> found =
      store_.Get(Table::kSets, SetKey(name, exact));
  if (!found.ok()) return found.status();
  if (!found->has_value()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no set \"", name, "\"",
        version == 0 ? std::string() : absl::StrCat(" version ", version),
        ": `traincheckctl sets list` shows those there are"));
  }
  return Parse(**found);
}

absl::StatusOr<v1::SetDetail> SetCatalog::Detail(const std::string& set_name,
                                                 uint32_t version) const {
  absl::StatusOr<v1::SetDetail> detail = Find(set_name, version);
  if (!detail.ok()) return detail;
  // Read as an import is: an older or newer daemon may have stored it, with
  // relations that are not known here.
  absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(detail->json());
  if (!set.ok()) return set.status();
  for (const Invariant& invariant : set->invariants) {
    *detail->add_invariants() = ToApi(invariant);
  }
  return detail;
}

absl::StatusOr<InvariantSet> SetCatalog::Load(const std::string& text) const {
  absl::StatusOr<RuleSelection> selection = ParseSelection(text);
  if (!selection.ok()) return selection.status();
  std::vector<InvariantSet> sets;
  for (SetRef& ref : selection->sets) {
    absl::StatusOr<v1::SetDetail> stored = Read(ref.name, ref.version);
    if (!stored.ok()) return stored.status();
    absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(stored->json());
    if (!set.ok()) return set.status();
    // The name of the result says which versions it is made of: a check that
    // goes on later reads the same ones.
    ref.version = set->version;
    sets.push_back(*std::move(set));
  }
  // As it is stored, it keeps a name and a version by which it is found again.
  if (sets.size() == 1 && selection->without.empty() &&
      selection->advised.empty()) {
    return std::move(sets[0]);
  }
  InvariantSet merged = MergeSets(sets);
  // A learned rule that says what a built-in one says would give a second
  // verdict, and a second violation, on the same thing.
  LeaveOutDoubles(&merged);
  LeaveOut(selection->without, &merged);
  Advise(selection->advised, &merged);
  merged.name = ToText(*selection);
  // The name says the versions of all of them.
  merged.version = 0;
  return merged;
}

absl::StatusOr<v1::Invariant> SetCatalog::FindInvariant(
    const std::string& id) const {
  const absl::StatusOr<std::vector<v1::SetSummary>> newest = List();
  if (!newest.ok()) return newest.status();
  v1::Invariant found;
  std::vector<std::string> sets;
  // One set after the other: all at once are much memory.
  for (const v1::SetSummary& summary : *newest) {
    const absl::StatusOr<v1::SetDetail> stored =
        Read(summary.name(), summary.version());
    if (absl::IsNotFound(stored.status())) continue;  // deleted since
    if (!stored.ok()) return stored.status();
    absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(stored->json());
    if (!set.ok()) return set.status();
    for (const Invariant& invariant : set->invariants) {
      if (invariant.id != id) continue;
      // The id is a hash of what the rule says, so it reads the same in each
      // set.
      found = ToApi(invariant);
      sets.push_back(summary.name());
    }
  }
  if (sets.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no set has an invariant \"", id, "\""));
  }
  found.mutable_sets()->Assign(sets.begin(), sets.end());
  return found;
}

}  // namespace traincheck::server
