// A hypothesis on its way to be a rule.
//
// Threads: plain values.
#ifndef TRAINCHECK_INFERENCE_CANDIDATE_H_
#define TRAINCHECK_INFERENCE_CANDIDATE_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "inference/scoreboard.h"
#include "invariants/rules/invariant.h"
#include "invariants/rules/relation.h"

namespace traincheck {

// Name of a relation and parameters in canonical form.
using CandidateKey = std::pair<std::string, std::string>;

// By all of some others.
struct Implied {
  std::vector<CandidateKey> by;
  std::string why;
  auto operator<=>(const Implied& other) const = default;
};

struct Candidate {
  const Relation* relation = nullptr;
  Invariant invariant;
  // With the count of runs that say so: where one shows it without the others,
  // it is not implied.
  std::map<Implied, size_t> implied;
  size_t runs = 0;                 // that showed it
  std::set<std::string> programs;  // the same
  Score score;
  std::string dropped;  // why; "": still in
};

using Candidates = std::map<CandidateKey, Candidate>;

CandidateKey KeyOf(const Relation& relation, const nlohmann::json& parameters);

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_CANDIDATE_H_
