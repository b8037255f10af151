#include "inference/precondition_learner.h"

#include <algorithm>
#include <string>

namespace traincheck {

namespace {

constexpr size_t kMaxClauses = 3;
// A list that covers less than this part of the windows in which the rule
// held is about something else.
constexpr double kLeastCoverage = 0.5;

// One clause and what it says of each example.
struct Candidate {
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

void AddClause(const Clause& clause, std::vector<Candidate>* candidates) {
  std::string canonical = ToJson(clause).dump();
  for (const Candidate& candidate : *candidates) {
    if (candidate.canonical == canonical) return;
  }
  candidates->push_back({clause, std::move(canonical), {}});
}

// Clauses that at least one window with the event fulfils.
std::vector<Candidate> Candidates(
    const std::vector<const Fact*>& facts,
    const std::vector<WeightedExample>& examples) {
  std::vector<Candidate> candidates;
  for (const WeightedExample& example : examples) {
    if (!example.holds) continue;
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
            [](const Candidate& a, const Candidate& b) {
              return a.canonical < b.canonical;
            });
  for (Candidate& candidate : candidates) {
    for (const WeightedExample& example : examples) {
      candidate.holds.push_back(
          Holds(candidate.clause, 1, ReaderOf(facts, example)));
    }
  }
  return candidates;
}

class Search {
 public:
  Search(const std::vector<Candidate>& candidates,
         const std::vector<WeightedExample>& examples)
      : candidates_(candidates), examples_(examples) {
    for (const WeightedExample& example : examples) {
      if (example.holds) all_ += example.windows;
    }
  }

  // The best list of `size` clauses; empty: none.
  std::vector<size_t> Best(size_t size) {
    best_.clear();
    best_coverage_ = 0;
    chosen_.clear();
    Extend(0, size);
    return best_;
  }

 private:
  void Extend(size_t from, size_t left) {
    if (left == 0) {
      Try();
      return;
    }
    for (size_t i = from; i < candidates_.size(); ++i) {
      chosen_.push_back(i);
      Extend(i + 1, left - 1);
      chosen_.pop_back();
    }
  }

  void Try() {
    uint64_t covered = 0;
    for (size_t e = 0; e < examples_.size(); ++e) {
      bool all = true;
      bool none_fails = true;
      for (size_t c : chosen_) {
        all &= candidates_[c].holds[e] == Tri::kYes;
        none_fails &= candidates_[c].holds[e] != Tri::kNo;
      }
      if (!examples_[e].holds && none_fails) return;
      if (examples_[e].holds && all) covered += examples_[e].windows;
    }
    if (covered <= best_coverage_) return;
    if (static_cast<double>(covered) <
        kLeastCoverage * static_cast<double>(all_)) {
      return;
    }
    best_coverage_ = covered;
    best_ = chosen_;
  }

  const std::vector<Candidate>& candidates_;
  const std::vector<WeightedExample>& examples_;
  uint64_t all_ = 0;
  std::vector<size_t> chosen_;
  std::vector<size_t> best_;
  uint64_t best_coverage_ = 0;
};

}  // namespace

std::optional<Precondition> LearnPrecondition(
    const std::vector<const Fact*>& facts,
    const std::vector<WeightedExample>& examples) {
  const std::vector<Candidate> candidates = Candidates(facts, examples);
  Search search(candidates, examples);
  for (size_t size = 1; size <= kMaxClauses; ++size) {
    const std::vector<size_t> best = search.Best(size);
    if (best.empty()) continue;
    std::vector<Clause> clauses;
    for (size_t i : best) clauses.push_back(candidates[i].clause);
    return Precondition(std::move(clauses));
  }
  return std::nullopt;
}

}  // namespace traincheck
