#include "inference/selection.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "inference/precondition_learner.h"

namespace traincheck {

namespace {

constexpr char kNeverSeen[] = "never occurred";
constexpr char kUndecided[] = "undecided in a reference run where it applies";
constexpr char kViolated[] = "violated in a reference";
constexpr char kNotRefutable[] = "seen too seldom to be trusted";
constexpr char kUnguarded[] = "no other rule checks its condition";
constexpr char kOverLimit[] = "over the limit of invariants";
constexpr char kImplied[] = "implied: ";

// Would each program pass what the others teach?
bool HoldsWithoutEach(const Candidate& candidate) {
  const std::vector<const Fact*>& facts = candidate.invariant.rule->facts();
  for (const std::string& program : candidate.score.Programs()) {
    const auto others = candidate.score.Examples(program);
    const bool refuted =
        std::any_of(others.begin(), others.end(),
                    [](const WeightedExample& e) { return !e.holds; });
    Precondition learned;  // always, where nothing refutes it
    if (refuted) {
      const auto condition = LearnPrecondition(facts, others);
      if (!condition) return false;
      learned = *condition;
    }
    if (IsViolated(learned, facts, candidate.score.ExamplesOf(program))) {
      return false;
    }
  }
  return true;
}

// Those in which nothing is in doubt any more.
std::set<CandidateKey> Shipped(const Candidates& candidates) {
  std::set<CandidateKey> shipped;
  for (const auto& [key, candidate] : candidates) {
    // A broader rule under a condition says less than it seems to.
    if (candidate.dropped.empty() && candidate.invariant.precondition.empty()) {
      shipped.insert(key);
    }
  }
  return shipped;
}

// What holds for one experiment does not say what holds for all.
bool IsAsWide(const Invariant& broad, const Invariant& narrow) {
  return broad.scope == Scope::kGeneral || narrow.scope != Scope::kGeneral;
}

// Are all that imply it among these? A run that showed the candidate without
// them says that it is not implied by them.
bool IsImpliedBy(const std::set<CandidateKey>& rules,
                 const Candidates& candidates, const Candidate& candidate,
                 const std::pair<const Implied, size_t>& implied) {
  if (implied.second < candidate.runs) return false;
  return std::all_of(implied.first.by.begin(), implied.first.by.end(),
                     [&](const CandidateKey& by) {
                       return rules.count(by) > 0 &&
                              IsAsWide(candidates.at(by).invariant,
                                       candidate.invariant);
                     });
}

// Also those that such rules imply: they report what it would. One that implies
// it may be implied itself, and may have been dropped since.
std::set<CandidateKey> Standing(const Candidates& candidates) {
  std::set<CandidateKey> standing = Shipped(candidates);
  for (size_t before = 0; before != standing.size();) {
    before = standing.size();
    for (const auto& [key, candidate] : candidates) {
      if (!candidate.dropped.starts_with(kImplied) ||
          !candidate.invariant.precondition.empty() || standing.count(key)) {
        continue;
      }
      const bool stands = std::any_of(
          candidate.implied.begin(), candidate.implied.end(),
          [&](const auto& implied) {
            return IsImpliedBy(standing, candidates, candidate, implied);
          });
      if (stands) standing.insert(key);
    }
  }
  return standing;
}

bool IsGuarded(const Candidate& candidate,
               const std::set<CandidateKey>& standing) {
  // A condition on a fact silences the rule where the fact is absent. That is
  // harmless only if another rule reports just that: each such fact needs one
  // of its guards among the shipped rules.
  for (const Clause& clause : candidate.invariant.precondition.Clauses()) {
    const auto guards = candidate.invariant.rule->GuardsOf(*clause.fact);
    const bool guarded = std::any_of(
        guards.begin(), guards.end(), [&](const nlohmann::json& guard) {
          return standing.count(KeyOf(*candidate.relation, guard)) > 0;
        });
    if (!guards.empty() && !guarded) return false;
  }
  return true;
}

// Greater: of more use to more people.
auto RankOf(const Candidate& candidate) {
  return std::tuple(candidate.invariant.scope == Scope::kGeneral,
                    candidate.score.Programs().size(), candidate.score.units(),
                    candidate.score.passed());
}

}  // namespace

CandidateKey KeyOf(const Relation& relation, const nlohmann::json& parameters) {
  return {relation.name(),
          // Names in programs may hold bytes that are not UTF-8; without
          // `replace` dump would throw.
          parameters.dump(-1, ' ', false,
                          nlohmann::json::error_handler_t::replace)};
}

void Weigh(Candidate* candidate) {
  if (!candidate->dropped.empty()) return;
  const Score& score = candidate->score;
  // Where the rule's subject was there and nothing could be decided, the rule
  // may stay unknown in other runs as well.
  if (!score.seen()) {
    candidate->dropped = kNeverSeen;
  } else if (!score.DecidedEverywhere()) {
    candidate->dropped = kUndecided;
  }
  if (!candidate->dropped.empty() || score.violated() == 0) return;
  const auto precondition =
      LearnPrecondition(candidate->invariant.rule->facts(), score.Examples());
  if (!precondition || precondition->empty()) {
    candidate->dropped = kViolated;
    return;
  }
  // A condition that one program alone teaches is that program's habit.
  if (!HoldsWithoutEach(*candidate)) {
    candidate->invariant.scope = Scope::kExperiment;
  }
  candidate->invariant.precondition = *precondition;
  // Windows that were counted without the condition do not support the rule
  // with it.
  candidate->score = Score();
}

void WeighAgain(Candidate* candidate) {
  if (!candidate->dropped.empty() || candidate->invariant.precondition.empty())
    return;
  // The condition was learned from a sample of the windows (kMaxExamples); a
  // window that was left out may refute it.
  if (candidate->score.violated() > 0) {
    candidate->dropped = kViolated;
  } else if (!candidate->score.seen()) {
    candidate->dropped = kNeverSeen;
  } else if (!candidate->score.DecidedEverywhere()) {
    candidate->dropped = kUndecided;
  }
}

void Settle(const InferenceOptions& options, const ProgramKinds& kinds,
            Candidate* candidate) {
  if (!candidate->dropped.empty()) return;
  const Score& score = candidate->score;
  if (!(ChanceOf(score.varied()) < options.max_chance)) {
    candidate->dropped = kNotRefutable;
  }
  if (kinds.Count(score.Programs()) < options.min_programs) {
    // Several programs of one kind share their habits; what they agree on need
    // not hold elsewhere.
    candidate->invariant.scope = Scope::kExperiment;
  }
}

void DropUnguarded(Candidates* candidates) {
  const std::set<CandidateKey> standing = Standing(*candidates);
  for (auto& [key, candidate] : *candidates) {
    if (candidate.dropped.empty() && !IsGuarded(candidate, standing)) {
      candidate.dropped = kUnguarded;
    }
  }
}

void Suppress(Candidates* candidates) {
  // As it is before: a rule that is implied itself implies narrower ones all
  // the same, whatever the order of the keys.
  const std::set<CandidateKey> shipped = Shipped(*candidates);
  for (auto& [key, candidate] : *candidates) {
    for (const auto& implied : candidate.implied) {
      if (!candidate.dropped.empty()) break;
      if (IsImpliedBy(shipped, *candidates, candidate, implied)) {
        candidate.dropped = kImplied + implied.first.why;
      }
    }
  }
}

void KeepBest(uint32_t most, Candidates* candidates) {
  std::vector<Candidate*> in;
  for (auto& [key, candidate] : *candidates) {
    if (candidate.dropped.empty()) in.push_back(&candidate);
  }
  if (in.size() <= most) return;
  // Equal ones stay in the order of their keys.
  std::stable_sort(in.begin(), in.end(),
                   [](const Candidate* a, const Candidate* b) {
                     return RankOf(*a) > RankOf(*b);
                   });
  for (size_t i = most; i < in.size(); ++i) in[i]->dropped = kOverLimit;
  // Guards may be among them.
  DropUnguarded(candidates);
}

}  // namespace traincheck
