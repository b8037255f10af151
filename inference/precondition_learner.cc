#include "inference/precondition_learner.h"

#include <algorithm>
#include <string>

namespace traincheck {

namespace {

constexpr size_t kMaxClauses = 3;
constexpr size_t kMaxAlternatives = 3;
// A condition that covers less than this part of the windows in which the rule
// held is about something else.
constexpr double kLeastCoverage = 0.5;
// One more alternative for fewer windows says little and fits anything.
constexpr double kLeastShare = 0.1;

// One clause and what it says of each example.
struct ClauseCandidate {
  Clause clause;
  std::string canonical;
  std::vector<Tri> holds;
};

FactReader ReaderOf(const std::vector<const Fact*>& facts,
                    const WeightedExample& example) {
  return [&facts, &example](const Fact& fact, size_t) -> FactValue {
    for (size_t i = 0; i < facts.size(); ++i) {
      if (facts[i] == &fact) return example.facts[i];
    }
    return {};
  };
}

void AddClause(const Clause& clause, std::vector<ClauseCandidate>* candidates) {
  std::string canonical = ToJson(clause).dump();
  for (const ClauseCandidate& candidate : *candidates) {
    if (candidate.canonical == canonical) return;
  }
  candidates->push_back({clause, std::move(canonical), {}});
}

// Clauses that at least one window with the event fulfils.
std::vector<ClauseCandidate> Candidates(
    const std::vector<const Fact*>& facts,
    const std::vector<WeightedExample>& examples) {
  std::vector<ClauseCandidate> candidates;
  for (const WeightedExample& example : examples) {
    if (!example.holds) continue;
    // A fact that is not known here can be no clause: unknown neither fulfils
    // nor excludes it.
    for (size_t i = 0; i < facts.size(); ++i) {
      const FactValue& value = example.facts[i];
      if (!IsKnown(value)) continue;
      AddClause({ClauseKind::kExists, facts[i], nullptr, {}}, &candidates);
      if (facts[i]->type == FactType::kNumber) continue;
      AddClause({ClauseKind::kConstant, facts[i], nullptr, value}, &candidates);
      // Equality of two flags says less than the flags themselves.
      for (size_t j = i + 1; j < facts.size(); ++j) {
        if (facts[i]->type == FactType::kText && value == example.facts[j]) {
          AddClause({ClauseKind::kEqual, facts[i], facts[j], {}}, &candidates);
        }
      }
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const ClauseCandidate& a, const ClauseCandidate& b) {
              return a.canonical < b.canonical;
            });
  // Once here and not in each of the combinations that Search tries.
  for (ClauseCandidate& candidate : candidates) {
    for (const WeightedExample& example : examples) {
      candidate.holds.push_back(
          Holds(candidate.clause, 1, ReaderOf(facts, example)));
    }
  }
  return candidates;
}

// Tries every list of up to kMaxClauses clauses: cubic in the clauses, and
// linear in the examples, of which a score keeps kMaxExamples at most.
// Exhaustive, so that the result does not depend on an order of trying.
class Search {
 public:
  Search(const std::vector<ClauseCandidate>& candidates,
         const std::vector<WeightedExample>& examples)
      : candidates_(candidates),
        examples_(examples),
        covered_(examples.size()) {
    for (const WeightedExample& example : examples) {
      if (example.holds) all_ += example.windows;
    }
  }

  // The smallest list that covers the share of what is not covered yet, which
  // it takes as covered; empty: none.
  ClauseList Next() {
    for (size_t size = 1; size <= kMaxClauses; ++size) {
      best_.clear();
      best_coverage_ = 0;
      Extend(0, size);
      if (!best_.empty()) return Take();
    }
    return {};
  }

  // Part of the windows with the event that the lists cover. REQUIRES: the rule
  // held in some window.
  double Coverage() const {
    uint64_t covered = 0;
    for (size_t e = 0; e < examples_.size(); ++e) {
      if (covered_[e]) covered += examples_[e].windows;
    }
    return static_cast<double>(covered) / static_cast<double>(all_);
  }

 private:
  void Extend(size_t from, size_t left) {
    if (left == 0) {
      Try();
      return;
    }
    // Each set of clauses once, in rising order. Their number is small: a rule
    // offers a handful of facts with few values.
    for (size_t i = from; i < candidates_.size(); ++i) {
      chosen_.push_back(i);
      Extend(i + 1, left - 1);
      chosen_.pop_back();
    }
  }

  Tri AllHold(const std::vector<size_t>& chosen, size_t example) const {
    Tri result = Tri::kYes;
    for (size_t c : chosen) {
      const Tri one = candidates_[c].holds[example];
      if (one == Tri::kNo) return one;
      if (one == Tri::kUnknown) result = one;
    }
    return result;
  }

  void Try() {
    uint64_t gained = 0;
    for (size_t e = 0; e < examples_.size(); ++e) {
      const Tri holds = AllHold(chosen_, e);
      // An unknown fact in a window that refuted the rule may be as the clause
      // wants it, so the clause does not separate that window.
      if (!examples_[e].holds && holds != Tri::kNo) return;
      if (examples_[e].holds && holds == Tri::kYes && !covered_[e]) {
        gained += examples_[e].windows;
      }
    }
    const double least = kLeastShare * static_cast<double>(all_);
    // The first of equal ones stays: candidates come in canonical order.
    if (gained <= best_coverage_ || static_cast<double>(gained) < least) return;
    best_coverage_ = gained;
    best_ = chosen_;
  }

  ClauseList Take() {
    for (size_t e = 0; e < examples_.size(); ++e) {
      if (examples_[e].holds && AllHold(best_, e) == Tri::kYes) {
        covered_[e] = true;
      }
    }
    ClauseList clauses;
    for (size_t c : best_) clauses.push_back(candidates_[c].clause);
    return clauses;
  }

  const std::vector<ClauseCandidate>& candidates_;
  const std::vector<WeightedExample>& examples_;
  uint64_t all_ = 0;
  std::vector<bool> covered_;  // by example
  std::vector<size_t> chosen_;
  std::vector<size_t> best_;
  uint64_t best_coverage_ = 0;
};

}  // namespace

std::optional<Precondition> LearnPrecondition(
    const std::vector<const Fact*>& facts,
    const std::vector<WeightedExample>& examples) {
  const std::vector<ClauseCandidate> candidates = Candidates(facts, examples);
  Search search(candidates, examples);
  std::vector<ClauseList> alternatives;
  while (alternatives.size() < kMaxAlternatives) {
    ClauseList clauses = search.Next();
    if (clauses.empty()) break;
    alternatives.push_back(std::move(clauses));
  }
  if (alternatives.empty() || search.Coverage() < kLeastCoverage) {
    return std::nullopt;
  }
  return Precondition(std::move(alternatives));
}

bool IsViolated(const Precondition& precondition,
                const std::vector<const Fact*>& facts,
                const std::vector<WeightedExample>& examples) {
  return std::any_of(
      examples.begin(), examples.end(), [&](const WeightedExample& example) {
        return !example.holds &&
               // A window in which the condition is unknown gets no verdict, so
               // it is not a violation.
               precondition.Holds(1, ReaderOf(facts, example)) == Tri::kYes;
      });
}

}  // namespace traincheck
