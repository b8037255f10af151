// Facts by name, as preconditions read them. Each is defined once, in
// call_facts.cc, optimizer_facts.cc or variable_facts.cc: name, type, subject,
// and when it is known. Unknown is a value of its own and makes every clause
// over it undecided.
//
// Threads: constant tables.
#ifndef TRAINCHECK_INVARIANTS_FACTS_FACT_H_
#define TRAINCHECK_INVARIANTS_FACTS_FACT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "invariants/facts/process_facts.h"

namespace traincheck {

// monostate: unknown.
using FactValue = std::variant<std::monostate, bool, double, std::string>;

inline bool IsKnown(const FactValue& value) { return value.index() != 0; }

// What a fact is read from. A window fills in what it has.
struct FactSubject {
  const ProcessFacts* facts = nullptr;
  const Call* call = nullptr;
  uint32_t optimizer = 0;  // object; 0: none
  uint32_t variable = 0;   // 0: none
  uint32_t group = 0;      // parameter group that holds the variable
};

enum class FactType { kBool, kNumber, kText };

// What must be recorded besides the skeleton for a fact to be known.
enum class FactState {
  kNone,
  kAny,        // some state record of the variable
  kGradients,  // of parameters
};

struct Fact {
  const char* name;
  FactType type;
  FactState state;
  const char* text;     // "the module called is in training mode"
  const char* unknown;  // when it is unknown
  FactValue (*read)(const FactSubject& subject);
};

// Tables of the three subjects.
const std::vector<Fact>& CallFacts();
const std::vector<Fact>& OptimizerFacts();
const std::vector<Fact>& VariableFacts();

// Null: no fact of this version.
const Fact* FindFact(const std::string& name);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_FACT_H_
