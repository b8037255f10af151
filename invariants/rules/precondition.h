// When a rule applies: one of several lists of clauses over facts, all of
// which hold. A clause that reads an unknown fact is undecided, and so is its
// list unless another clause fails, and the precondition unless another list
// holds.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_PRECONDITION_H_
#define TRAINCHECK_INVARIANTS_RULES_PRECONDITION_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/facts/fact.h"
#include "nlohmann/json.hpp"

namespace traincheck {

enum class ClauseKind {
  kConstant,    // fact == value, for every subject of the window
  kConsistent,  // the same value for all subjects
  kUnequal,     // different values for all subjects
  kExists,      // known for every subject
  kEqual,       // fact == other, for every subject
};

struct Clause {
  ClauseKind kind = ClauseKind::kConstant;
  const Fact* fact = nullptr;
  const Fact* other = nullptr;  // kEqual
  FactValue value;              // kConstant
};

// Value of a fact for subject number `subject`.
using FactReader = std::function<FactValue(const Fact& fact, size_t subject)>;

// Over `subjects` subjects (1, or 2 and more for rules over pairs).
Tri Holds(const Clause& clause, size_t subjects, const FactReader& read);

// All of them must hold.
using ClauseList = std::vector<Clause>;

// No clauses: yes.
Tri Holds(const ClauseList& clauses, size_t subjects, const FactReader& read);

class Precondition {
 public:
  // Always holds.
  Precondition() = default;
  explicit Precondition(ClauseList clauses);
  // One of them must hold.
  explicit Precondition(std::vector<ClauseList> alternatives);

  bool empty() const { return alternatives_.empty(); }
  // None: it always holds.
  const std::vector<ClauseList>& alternatives() const { return alternatives_; }
  // Those of all alternatives.
  std::vector<Clause> Clauses() const;
  Tri Holds(const FactSubject& subject) const;
  Tri Holds(const std::vector<FactSubject>& subjects) const;
  Tri Holds(size_t subjects, const FactReader& read) const;

  // {"all": [...]} or {"any": [{"all": [...]}, ...]}, sorted.
  nlohmann::json ToJson() const;
  // "the module called is in training mode, and ..."; "" without clauses.
  std::string Describe() const;

  // InvalidArgument names the JSON path below `path`.
  [[nodiscard]] static absl::StatusOr<Precondition> FromJson(
      const nlohmann::json& json, const std::string& path);

 private:
  std::vector<ClauseList> alternatives_;  // none empty
};

nlohmann::json ToJson(const Clause& clause);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_PRECONDITION_H_
