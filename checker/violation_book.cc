#include "checker/violation_book.h"

#include <algorithm>

#include "base/hash.h"
#include "checker/incidents/incidents.h"
#include "checker/violation_words.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

void AddAll(const std::vector<std::string>& from,
            std::vector<std::string>* to) {
  for (const std::string& text : from) AddOnce(text, to);
}

bool Overlap(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::any_of(a.begin(), a.end(), [&b](int32_t rank) {
    return std::find(b.begin(), b.end(), rank) != b.end();
  });
}

using Step = std::optional<int64_t>;  // nullopt: not known

Step Earlier(Step a, Step b) {
  if (!a || !b) return a ? a : b;
  return std::min(a, b);
}

// nullopt: without a limit.
Step AtMost(Step limit, Step step) {
  return limit && step > limit ? limit : step;
}

IncidentPart PartOf(const Violation& violation) {
  return {.id = violation.id,
          .attempt = violation.attempt,
          .first_step = violation.first_step,
          .last_step = violation.last_step,
          .ranks = violation.ranks,
          .variables = violation.variables,
          .subjects = violation.subjects,
          .place = violation.place,
          .advice = violation.notes.advice,
          .learned = violation.learned};
}

// Says of each to which incident it belongs.
void Group(std::vector<Violation>* all) {
  std::vector<IncidentPart> parts;
  for (const Violation& violation : *all) parts.push_back(PartOf(violation));
  const std::vector<IncidentRole> roles = FindIncidents(parts);
  for (size_t i = 0; i < roles.size(); ++i) {
    const std::optional<size_t> cause = roles[i].cause;
    (*all)[i].grouped = {.incident = parts[roles[i].lead].id,
                         .cause = cause ? parts[*cause].id : "",
                         .alerts = roles[i].alert};
  }
}

}  // namespace

void ViolationBook::Add(const Invariant& invariant, const Verdict& verdict) {
  if (verdict.outcome == Outcome::kUnknown) return;
  if (verdict.outcome == Outcome::kViolated) return Violate(invariant, verdict);
  const auto found =
      units_.find(std::tie(verdict.attempt, invariant.id, verdict.unit));
  if (found != units_.end()) Pass(verdict, found->second);
}

void ViolationBook::Pass(const Verdict& verdict, const UnitPlace& place) {
  Part& part = entries_.at(place.key).parts.at(place.part);
  // A pass in the step that was violated, of another window, does not end the
  // violation; nor does one in a step that is not known, which compares as
  // less.
  if (!part.open || verdict.step <= part.last_step) return;
  part.open = false;
  changed_.insert(place.key);
}

void ViolationBook::Violate(const Invariant& invariant,
                            const Verdict& verdict) {
  const auto [unit, is_new] =
      units_.try_emplace(UnitKey(verdict.attempt, invariant.id, verdict.unit));
  UnitPlace& place = unit->second;
  if (is_new) {
    // The label of the first window makes the id, so that the same violation
    // has the same id after a check that begins anew. Ranks stay out of it
    // where units are of one rank: several ranks that show the same from one
    // window on are one violation.
    place.key = Key(verdict.attempt, invariant.id, verdict.label,
                    verdict.across_ranks ? RankWords(verdict.ranks) : "");
    place.part = PartKey(verdict.ranks, verdict.unit);
  }
  Part& part = is_new ? *Start(invariant, verdict, place)
                      : entries_.at(place.key).parts.at(place.part);
  part.open = true;
  if (!verdict.again) {
    ++part.count;
    part.step_before = part.last_step;
    if (!part.first_step) MoveStart(verdict, place.key, &part);
  } else if (part.label == verdict.label) {
    // The first window has come again with more of its ranks: it knows better
    // what was wrong, and in which step.
    part.finding = verdict.finding;
    regroup_ = true;
    MoveStart(verdict, place.key, &part);
  }
  // From the step before the newest window: a window that comes again may have
  // an earlier step than it had at first.
  part.last_step = std::max(part.step_before, verdict.step);
  changed_.insert(place.key);
  if (!verdict.across_ranks) TouchDisagreements(verdict.attempt, verdict.step);
}

void ViolationBook::MoveStart(const Verdict& verdict, const Key& key,
                              Part* part) {
  if (part->first_step == verdict.step) return;
  const auto old =
      disagreements_.equal_range({verdict.attempt, part->first_step});
  for (auto at = old.first; at != old.second; ++at) {
    if (at->second != key) continue;
    // They are found by their first step.
    disagreements_.erase(at);
    disagreements_.emplace(std::pair(verdict.attempt, verdict.step), key);
    break;
  }
  part->first_step = part->step_before = verdict.step;
  regroup_ = true;
}

ViolationBook::Part* ViolationBook::Start(const Invariant& invariant,
                                          const Verdict& verdict,
                                          const UnitPlace& place) {
  Entry& entry = entries_[place.key];
  entry.invariant = &invariant;
  entry.attempt = verdict.attempt;
  entry.across_ranks = verdict.across_ranks;
  Part& part = entry.parts[place.part];
  part.ranks = verdict.ranks;
  part.process = verdict.process;
  if (part.process && part.ranks.empty()) unplaced_.insert(*part.process);
  part.label = verdict.label;
  part.first_step = part.last_step = verdict.step;
  part.finding = verdict.finding;
  if (verdict.across_ranks) {
    disagreements_.emplace(std::pair(verdict.attempt, verdict.step), place.key);
  }
  regroup_ = true;
  return &part;
}

void ViolationBook::Place(uint32_t process, int32_t rank) {
  if (unplaced_.erase(process) == 0) return;
  for (auto& [key, entry] : entries_) {
    for (auto& [unit, part] : entry.parts) {
      if (part.process != process || !part.ranks.empty()) continue;
      part.ranks = {rank};
      regroup_ = true;
      changed_.insert(key);
      TouchDisagreements(entry.attempt, part.first_step);
    }
  }
}

void ViolationBook::EndProcess(uint32_t process, uint32_t attempt,
                               std::optional<int32_t> rank, uint64_t steps) {
  const auto last = static_cast<int64_t>(steps) - 1;
  last_of_process_[process] = last;
  if (rank) last_of_rank_[{attempt, *rank}] = last;
  for (const auto& [key, entry] : entries_) {
    for (const auto& [unit, part] : entry.parts) {
      const std::optional<int64_t> made = LastMade(entry, part);
      // It is shown in another step from here on (Render).
      if (made && part.last_step > made) changed_.insert(key);
    }
  }
}

std::optional<int64_t> ViolationBook::LastMade(const Entry& entry,
                                               const Part& part) const {
  if (part.process) {
    const auto found = last_of_process_.find(*part.process);
    if (found == last_of_process_.end()) return std::nullopt;
    return found->second;
  }
  std::optional<int64_t> last;
  for (const int32_t rank : part.ranks) {
    const auto found = last_of_rank_.find({entry.attempt, rank});
    if (found == last_of_rank_.end()) return std::nullopt;
    // The most of them: a step that any of these ranks made is a step of the
    // run.
    last = std::max(last, std::optional(found->second));
  }
  return last;
}

void ViolationBook::TouchDisagreements(uint32_t attempt,
                                       std::optional<int64_t> step) {
  const auto range = disagreements_.equal_range({attempt, step});
  for (auto it = range.first; it != range.second; ++it) {
    changed_.insert(it->second);
  }
}

void ViolationBook::EndRun() {
  for (auto& [key, entry] : entries_) {
    for (auto& [unit, part] : entry.parts) part.open = false;
    changed_.insert(key);
  }
  regroup_ = true;
}

void ViolationBook::Regroup() {
  regroup_ = false;
  // Of all violations anew, and not of those that changed: the result is a
  // function of what they are, not of the order in which they came.
  const std::vector<Violation> all = All();
  size_t number = 0;
  for (const auto& [key, entry] : entries_) {
    Grouped& known = grouped_[key];
    // All() goes through entries_ in the same order.
    const Grouped& now = all[number++].grouped;
    if (now == known) continue;
    known = now;
    changed_.insert(key);
  }
}

std::vector<Violation> ViolationBook::TakeChanges() {
  if (regroup_) Regroup();
  std::vector<Violation> changes;
  for (const Key& key : changed_) {
    changes.push_back(Render(key, entries_.at(key)));
    changes.back().grouped = grouped_.at(key);
  }
  changed_.clear();
  // Who follows them knows to which incident a violation belongs now before it
  // sees what leads it.
  std::stable_partition(changes.begin(), changes.end(),
                        [](const Violation& violation) {
                          return violation.grouped.incident != violation.id;
                        });
  return changes;
}

std::vector<Violation> ViolationBook::All() const {
  std::vector<Violation> all;
  for (const auto& [key, entry] : entries_) all.push_back(Render(key, entry));
  Group(&all);
  return all;
}

void ViolationBook::Fields(const Rules& rules, Archive& archive) {
  archive(entries_, units_, disagreements_, changed_, unplaced_,
          last_of_process_, last_of_rank_);
  if (!archive.reading()) return;
  // Code below takes for granted that each key leads to an entry with a part. A
  // state that was written by this code has them; what others hand in under a
  // right hash may not.
  bool whole = true;
  for (auto& [key, entry] : entries_) {
    const auto rule = rules.find(std::get<1>(key));
    whole &= rule != rules.end() && !entry.parts.empty();
    if (rule != rules.end()) entry.invariant = rule->second;
  }
  const auto is_there = [this](const Key& key) {
    return entries_.count(key) != 0;
  };
  for (const auto& [unit, place] : units_) {
    whole &= is_there(place.key) &&
             entries_.at(place.key).parts.count(place.part) != 0;
  }
  for (const auto& [step, key] : disagreements_) whole &= is_there(key);
  for (const Key& key : changed_) whole &= is_there(key);
  if (!whole) archive.Fail("violations do not belong together");
}

Violation ViolationBook::Render(const Key& key, const Entry& entry) const {
  Violation violation;
  violation.run = run_;
  violation.attempt = entry.attempt;
  violation.invariant_id = entry.invariant->id;
  violation.relation = entry.invariant->rule->relation_name();
  violation.text = entry.invariant->text;
  violation.id = HashText(run_ + "\n" + std::to_string(entry.attempt) + "\n" +
                          entry.invariant->id + "\n" + std::get<2>(key) + "\n" +
                          std::get<3>(key));
  violation.open = false;
  std::set<int32_t> ranks;
  std::optional<int64_t> began;  // in the step that was open then
  for (const auto& [unit, part] : entry.parts) {
    // The first part in order of ranks gives the words, so that they are the
    // same however the ranks' records interleave.
    const bool first = violation.count == 0;
    const std::optional<int64_t> made = LastMade(entry, part);
    began = Earlier(began, part.first_step);
    violation.first_step =
        Earlier(violation.first_step, AtMost(made, part.first_step));
    violation.last_step =
        std::max(violation.last_step, AtMost(made, part.last_step));
    violation.count += part.count;
    violation.open |= part.open;
    ranks.insert(part.ranks.begin(), part.ranks.end());
    AddAll(part.finding.apis, &violation.apis);
    AddAll(part.finding.variables, &violation.variables);
    AddAll(part.finding.subjects, &violation.subjects);
    AddAll(part.finding.sites, &violation.sites);
    AddAll(part.finding.evidence, &violation.evidence);
    const std::string process = part.process ? name_of_(*part.process) : "";
    if (!process.empty()) {
      AddOnce("in " + process + "; other processes have the same rank",
              &violation.evidence);
    }
    if (first) {
      violation.callers = part.finding.callers;
      violation.expected = part.finding.expected;
      violation.seen = part.finding.seen;
    }
  }
  violation.ranks.assign(ranks.begin(), ranks.end());
  if (entry.across_ranks) AddCompanions(entry, began, &violation);
  AddWords(*entry.invariant, &violation);
  return violation;
}

// What the ranks broke, each for itself, in the step in which they began to
// disagree: most often the reason.
void ViolationBook::AddCompanions(const Entry& entry,
                                  std::optional<int64_t> step,
                                  Violation* violation) const {
  if (!step) return;
  const auto begin = entries_.lower_bound(Key(entry.attempt, "", "", ""));
  for (auto it = begin;
       it != entries_.end() && it->second.attempt == entry.attempt; ++it) {
    const Entry& other = it->second;
    if (other.across_ranks) continue;
    std::set<int32_t> ranks;
    const Finding* finding = nullptr;
    for (const auto& [unit, part] : other.parts) {
      if (!part.first_step || part.first_step > step || part.last_step < step ||
          !Overlap(part.ranks, violation->ranks)) {
        continue;
      }
      ranks.insert(part.ranks.begin(), part.ranks.end());
      if (!finding) finding = &part.finding;
    }
    if (!finding) continue;
    AddOnce(finding->seen + " on " + RankWords({ranks.begin(), ranks.end()}) +
                AgainstWords(*other.invariant),
            &violation->evidence);
    AddAll(finding->evidence, &violation->evidence);
  }
}

}  // namespace traincheck
