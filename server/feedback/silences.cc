#include "server/feedback/silences.h"

#include <fnmatch.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/logging.h"
#include "base/nearest.h"
#include "base/printable_text.h"
#include "invariants/relations/registry.h"
#include "server/sets/human_text.h"
#include "server/store/keys.h"
#include "server/store/named_entries.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr size_t kMaxSilences = 1000;
// People type ids.
constexpr size_t kIdLetters = 8;

// Without flags a * goes over dots and slashes, too, which names of variables
// have.
bool Fits(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool FitsVariable(const std::string& pattern, const std::string& variable) {
  return Fits(pattern, variable) ||
         // State of an optimizer is named behind the parameter: a silence of
         // the parameter covers it as well.
         Fits(pattern, variable.substr(0, variable.find('/')));
}

bool IsActive(const v1::Silence& silence, absl::Time now) {
  return silence.until_unix_ns() == 0 ||
         absl::FromUnixNanos(static_cast<int64_t>(silence.until_unix_ns())) >
             now;
}

// A silence with a mistyped name would cover nothing, and somebody would be
// alerted who has silenced it.
absl::Status NotThere(const std::string& what, const std::string& typed,
                      const std::vector<std::string>& names) {
  const std::string nearest = NearestWord(typed, names);
  return absl::NotFoundError(absl::StrCat(
      what, " ", QuotePrintable(typed),
      nearest.empty() ? "" : absl::StrCat("; the nearest is ", nearest)));
}

absl::Status CheckRelation(const std::string& name) {
  if (FindRelation(name) != nullptr) return absl::OkStatus();
  std::vector<std::string> names;
  for (const Relation* relation : Relations()) {
    names.push_back(relation->name());
  }
  return NotThere("there is no relation", name, names);
}

}  // namespace

bool Covers(const v1::Silence& silence, const v1::Violation& violation,
            const std::string& experiment) {
  const auto fits = [](const std::string& named, const std::string& is) {
    return named.empty() || named == is;
  };
  if (!fits(silence.rule(), violation.invariant_id()) ||
      !fits(silence.relation(), violation.relation()) ||
      !fits(silence.experiment(), experiment)) {
    return false;
  }
  if (silence.variable().empty()) return true;
  // All of them: a violation that concerns another variable as well is still
  // heard.
  return !violation.variables().empty() &&
         std::all_of(violation.variables().begin(), violation.variables().end(),
                     [&](const std::string& variable) {
                       return FitsVariable(silence.variable(), variable);
                     });
}

std::string SilencedBy(const v1::Silence& silence) {
  return absl::StrCat(silence.id(), ": ", silence.comment());
}

std::string SilenceOf(const v1::Violation& violation) {
  // The id stands in front and has no colon; the comment behind it may have
  // some.
  const std::string& by = violation.silenced_by();
  return by.substr(0, by.find(':'));
}

absl::StatusOr<std::unique_ptr<Silences>> Silences::Load(Store* store,
                                                         const SetCatalog* sets,
                                                         Clock now) {
  std::unique_ptr<Silences> silences(new Silences(store, sets, std::move(now)));
  absl::MutexLock lock(&silences->mutex_);
  absl::Status read = ReadEntries(*store, kSilencePrefix, &silences->by_id_);
  if (!read.ok()) return read;
  return silences;
}

absl::Status Silences::CheckRule(const std::string& id) const {
  const absl::StatusOr<v1::Invariant> rule = sets_.FindInvariant(id);
  if (!absl::IsNotFound(rule.status())) return rule.status();
  // Reads all sets, for the sake of the nearest id alone.
  const absl::StatusOr<std::vector<v1::SetSummary>> all = sets_.List();
  if (!all.ok()) return all.status();
  std::vector<std::string> ids;
  for (const v1::SetSummary& summary : *all) {
    const absl::StatusOr<v1::SetDetail> set = sets_.Detail(summary.name());
    if (!set.ok()) return set.status();
    for (const v1::Invariant& one : set->invariants()) ids.push_back(one.id());
  }
  return NotThere("no set has a rule", id, ids);
}

absl::Status Silences::Check(const v1::Silence& silence) const {
  const std::pair<const char*, const std::string*> texts[] = {
      {"the rule", &silence.rule()},
      {"the relation", &silence.relation()},
      {"the pattern of variables", &silence.variable()},
      {"the experiment", &silence.experiment()},
      {"who silences it", &silence.by()}};
  for (const auto& [what, text] : texts) {
    if (text->empty()) continue;
    if (absl::Status s = CheckHumanText(what, *text); !s.ok()) return s;
  }
  if (absl::Status s = CheckHumanText("the comment", silence.comment());
      !s.ok()) {
    return s;
  }
  if (silence.rule().empty() && silence.relation().empty() &&
      silence.variable().empty() && silence.experiment().empty()) {
    return absl::InvalidArgumentError(
        "a silence that names no rule, relation, variable or experiment would "
        "cover everything");
  }
  // A time above the largest signed number would turn into one before 1970.
  if (silence.until_unix_ns() >
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
      !IsActive(silence, now_())) {
    return absl::InvalidArgumentError("the silence ends in the past");
  }
  if (!silence.relation().empty()) {
    if (absl::Status s = CheckRelation(silence.relation()); !s.ok()) return s;
  }
  return silence.rule().empty() ? absl::OkStatus() : CheckRule(silence.rule());
}

std::string Silences::NewId(const v1::Silence& silence) const {
  for (size_t more = 0;; ++more) {
    const std::string id =
        HashText(absl::StrCat(silence.SerializeAsString(), more))
            .substr(0, kIdLetters);
    // Two that say the same, or whose ids begin alike, are told apart by the
    // count.
    if (!by_id_.contains(id)) return id;
  }
}

absl::StatusOr<v1::Silence> Silences::AddUntrusted(v1::Silence silence) {
  if (absl::Status s = Check(silence); !s.ok()) return s;
  silence.set_since_unix_ns(absl::ToUnixNanos(now_()));
  // What a client says of it counts nothing: it is counted when silences are
  // listed.
  silence.clear_covered();
  absl::MutexLock changing(&changing_);
  {
    absl::MutexLock lock(&mutex_);
    if (by_id_.size() >= kMaxSilences) {
      return absl::ResourceExhaustedError(absl::StrCat(
          kMaxSilences, " silences are there, which is the limit: ",
          "remove those that have ended"));
    }
    // changing_ is held, so nobody takes the id before it is written.
    silence.set_id(NewId(silence));
  }
  WriteSet writes;
  writes.Put(Table::kMeta, absl::StrCat(kSilencePrefix, silence.id()),
             silence.SerializeAsString());
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [this, silence] {
        spdlog::info("silence added id={} by={} comment={}", silence.id(),
                     QuotePrintable(silence.by()),
                     QuotePrintable(silence.comment()));
        absl::MutexLock lock(&mutex_);
        // Known only when it is durable: a silence that people see holds after
        // a restart.
        by_id_[silence.id()] = silence;
      },
      kPatience);
  if (!written.ok()) return written;
  return silence;
}

absl::StatusOr<v1::Silence> Silences::Remove(const std::string& id) {
  absl::MutexLock changing(&changing_);
  v1::Silence was;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) {
      return absl::NotFoundError(
          absl::StrCat("there is no silence ", QuotePrintable(id),
                       ": traincheckctl silences list names all"));
    }
    was = found->second;
  }
  WriteSet writes;
  writes.Delete(Table::kMeta, absl::StrCat(kSilencePrefix, id));
  const absl::Status written = store_.WriteAndApply(
      std::move(writes),
      [this, id] {
        spdlog::info("silence removed id={}", id);
        absl::MutexLock lock(&mutex_);
        // Until the deletion is durable it covers on, as it would after a
        // crash.
        by_id_.erase(id);
      },
      kPatience);
  if (!written.ok()) return written;
  return was;
}

// Ended silences stay on the list until somebody removes them: they explain why
// nobody was alerted then.
std::vector<v1::Silence> Silences::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Silence> all;
  for (const auto& [id, silence] : by_id_) all.push_back(silence);
  std::stable_sort(all.begin(), all.end(),
                   [](const v1::Silence& a, const v1::Silence& b) {
                     return a.since_unix_ns() < b.since_unix_ns();
                   });
  return all;
}

std::vector<v1::Silence> Silences::Active() const {
  const absl::Time now = now_();
  std::vector<v1::Silence> active;
  for (v1::Silence& silence : List()) {
    if (IsActive(silence, now)) active.push_back(std::move(silence));
  }
  // 0, which never ends, is the largest.
  std::stable_sort(active.begin(), active.end(),
                   [](const v1::Silence& a, const v1::Silence& b) {
                     return a.until_unix_ns() - 1 > b.until_unix_ns() - 1;
                   });
  return active;
}

}  // namespace traincheck::server
