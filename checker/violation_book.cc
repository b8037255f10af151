#include "checker/violation_book.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
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

// A part whose step is not known does not hide the step of another.
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
          .learned = violation.learned,
          .headline = violation.notes.headline,
          .brings = violation.notes.brings};
}

// The incident of each part, by ids of violations instead of positions.
std::vector<Grouped> Group(const std::vector<IncidentPart>& parts) {
  std::vector<Grouped> all;
  for (const IncidentRole& role : FindIncidents(parts)) {
    all.push_back({.incident = parts[role.lead].id,
                   .cause = role.cause ? parts[*role.cause].id : "",
                   .alerts = role.alert});
  }
  return all;
}

}  // namespace

void ViolationBook::Add(const Invariant& invariant, const Verdict& verdict) {
  // It neither breaks the rule nor shows that it holds again, so an open
  // violation stays open.
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
  // Also after a pass: a rule that is broken, kept and broken again by one unit
  // is one violation.
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
  // The step before the newest window counts, and not last_step itself: a
  // window that comes again may have an earlier step than it had at first.
  part.last_step = std::max(part.step_before, verdict.step);
  Widen(entries_.at(place.key), part);
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
  const auto [found, is_new] = entries_.try_emplace(place.key);
  Entry& entry = found->second;
  if (is_new) Number(&*found);
  entry.invariant = &invariant;
  entry.attempt = verdict.attempt;
  entry.across_ranks = verdict.across_ranks;
  Part& part = entry.parts[place.part];
  part.ranks = verdict.ranks;
  part.process = verdict.process;
  // The record that says the rank may come behind the first violations
  // (Place).
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

void ViolationBook::Number(std::pair<const Key, Entry>* entry) {
  // All tables by number have one row for each entry, from here on.
  entry->second.number = numbered_.size();
  numbered_.push_back(entry);
  grouped_.emplace_back();
  parts_.emplace_back();
  spans_.emplace_back();
}

void ViolationBook::Widen(const Entry& entry, const Part& part) {
  // Disagreements accompany nothing.
  if (entry.across_ranks || !part.first_step || !part.last_step) return;
  Span& span = spans_[entry.number];
  if (span.last < span.first) {
    span = {entry.attempt, *part.first_step, *part.last_step};
  }
  span.first = std::min(span.first, *part.first_step);
  span.last = std::max(span.last, *part.last_step);
}

void ViolationBook::Place(uint32_t process, int32_t rank) {
  // Asked after each batch; the walk over all entries below happens once for a
  // process that broke a rule before its rank was known.
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
      // Some rank of the part goes on, or did not end in order.
      if (!made) continue;
      // Steps of the part are cut off at the last one that was made, so its
      // incident has to be found by other steps than before.
      parts_[entry.number].id.clear();
      // It is shown in another step from here on (Render).
      if (part.last_step > made) {
        changed_.insert(key);
        // And may belong to another incident, as in a check that begins anew.
        regroup_ = true;
      }
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
  // Ranks that begin to disagree in this step show what each of them broke in
  // it as evidence (AddCompanions), and that has changed.
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
  // All violations are grouped anew, not only those that changed: incidents are
  // a function of what the violations are, not of the order in which they came.
  for (size_t number = 0; number < parts_.size(); ++number) {
    const auto& [key, entry] = *numbered_[number];
    if (parts_[number].id.empty()) parts_[number] = PartOf(Render(key, entry));
  }
  std::vector<Grouped> all = Group(parts_);
  for (size_t number = 0; number < all.size(); ++number) {
    if (all[number] == grouped_[number]) continue;
    grouped_[number] = std::move(all[number]);
    changed_.insert(numbered_[number]->first);
  }
}

std::vector<Violation> ViolationBook::TakeChanges() {
  // What changed is needed twice: as a part before incidents are found, and
  // with its incident behind that. It is rendered once. Regroup may add to
  // changed_ what moves to another incident.
  std::map<Key, Violation> rendered;
  const auto render = [&](const Key& key) -> Violation& {
    const auto [found, is_new] = rendered.try_emplace(key);
    if (is_new) found->second = Render(key, entries_.at(key));
    return found->second;
  };
  for (const Key& key : changed_) {
    parts_[entries_.at(key).number] = PartOf(render(key));
  }
  if (std::exchange(regroup_, false)) Regroup();
  std::vector<Violation> changes;
  for (const Key& key : changed_) {
    Violation& violation = render(key);
    violation.grouped = grouped_[entries_.at(key).number];
    changes.push_back(std::move(violation));
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
  std::vector<IncidentPart> parts;
  for (const auto& [key, entry] : entries_) {
    all.push_back(Render(key, entry));
    parts.push_back(PartOf(all.back()));
  }
  std::vector<Grouped> grouped = Group(parts);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].grouped = std::move(grouped[i]);
  }
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
  if (!whole) return archive.Fail("violations do not belong together");
  // Numbers are given anew, in the order of keys; nothing that is shown depends
  // on them. Incidents are not saved: the first TakeChanges finds them anew and
  // gives out all violations once more, under the same ids.
  for (auto& item : entries_) {
    Number(&item);
    for (const auto& [unit, part] : item.second.parts) Widen(item.second, part);
  }
}

Violation ViolationBook::Render(const Key& key, const Entry& entry) const {
  Violation violation;
  violation.run = run_;
  violation.attempt = entry.attempt;
  violation.invariant_id = entry.invariant->id;
  violation.relation = entry.invariant->rule->relation_name();
  violation.text = entry.invariant->text;
  // Nothing here depends on when or in which check it was found: who finds it
  // again overwrites it with itself.
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
  // Companions are added in the order of their keys, so that the evidence is
  // the same in whatever order violations came.
  std::vector<const std::pair<const Key, Entry>*> near;
  for (size_t number = 0; number < spans_.size(); ++number) {
    const Span& span = spans_[number];
    if (span.attempt == entry.attempt && span.first <= *step &&
        *step <= span.last) {
      near.push_back(numbered_[number]);
    }
  }
  std::sort(near.begin(), near.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  for (const auto* const item : near) {
    const Entry& other = item->second;
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

void ViolationBook::Part::Fields(Archive& archive) {
  archive(ranks, process, label, first_step, last_step, step_before, count,
          open, finding);
}

void ViolationBook::Entry::Fields(Archive& archive) {
  archive(attempt, across_ranks, parts);
}

void ViolationBook::UnitPlace::Fields(Archive& archive) { archive(key, part); }

}  // namespace traincheck
