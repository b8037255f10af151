// Facts by name, as preconditions and rules on facts read them. Each is defined
// once, in a row of call_facts.cc, optimizer_facts.cc, loader_facts.cc,
// variable_facts.cc or observed_facts.cc. docs/facts.md lists them.
//
// Unknown is a value of its own: it makes every clause over it undecided.
//
// Threads: constant tables.
#ifndef TRAINCHECK_INVARIANTS_FACTS_FACT_H_
#define TRAINCHECK_INVARIANTS_FACTS_FACT_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "invariants/facts/tri.h"

namespace traincheck {

class ProcessFacts;
struct Call;

// monostate: unknown.
using FactValue = std::variant<std::monostate, bool, double, std::string>;

inline bool IsKnown(const FactValue& value) { return value.index() != 0; }

inline FactValue ToFactValue(Tri value) {
  if (value == Tri::kUnknown) return {};
  return value == Tri::kYes;
}

// What a fact is read from. A window fills in what it has.
struct FactSubject {
  const ProcessFacts* facts = nullptr;
  const Call* call = nullptr;
  uint32_t optimizer = 0;  // object; 0: none
  uint32_t loader = 0;     // object; 0: none
  uint32_t variable = 0;   // 0: none
  uint32_t group = 0;      // parameter group that holds the variable
};

enum class FactOf { kCall, kOptimizer, kLoader, kVariable };

enum class FactType { kBool, kNumber, kText };

// What must be recorded besides the skeleton for a fact to be known.
enum class FactNeed {
  kNone,
  kAny,              // some state record of the variable
  kGradients,        // of parameters, wherever they may change
  kUpdates,          // of parameters, around the step
  kUpdatesOfFrozen,  // the same, and their gradients when it begins
  kBuffers,          // as training forwards find and leave them
  kStatistics,       // of gradients when the step begins
  kRows,             // digests of rows, around the step
  kLoads,            // parameters when they were loaded, and at the step
  kOverwrites,       // both: loads, and around the step
  kGenerators,       // around outermost forwards
  kScaler,           // what GradScalers do
  kDropout,          // arguments of functions that drop elements
  kLosses,           // tensors that losses compare
};

// The earlier call that people look for where a rule on a fact is broken.
enum class Blamed {
  kNobody,         // the call at which it shows, or a line that the agent names
  kSwitchOfMode,   // train() or eval() on the module
  kConstruction,   // of the optimizer, or of the loader
  kScheduler,      // its construction, as the agent says
  kSchedulerStep,  // its first one, as the agent says
};

struct Fact {
  const char* name;
  FactOf of;
  FactType type;
  FactNeed need;
  const char* text;  // "the module called is in training mode"
  // Where it is false: "the module called is in evaluation mode". Null: it is
  // no boolean.
  const char* otherwise;
  const char* unknown;  // when it is unknown
  FactValue (*read)(const FactSubject& subject);
  // Does it mean something for this subject, and could it be otherwise? Rules
  // that ask for a value of it judge no other subject. Null: for each.
  bool (*applies)(const FactSubject& subject) = nullptr;
  // Of a call: known when it ends only.
  bool at_end = false;
  // The agent looks at it itself, from this version of Sight::looks on; 0: it
  // follows from what is recorded.
  uint32_t looked_at_since = 0;
  Blamed blames = Blamed::kNobody;

  bool Applies(const FactSubject& subject) const {
    return applies == nullptr || applies(subject);
  }
};

// Tables of the four subjects.
const std::vector<Fact>& CallFacts();
const std::vector<Fact>& OptimizerFacts();
const std::vector<Fact>& LoaderFacts();
const std::vector<Fact>& VariableFacts();
// What the agent has looked at itself, of calls, optimizers and loaders.
const std::vector<Fact>& ObservedFacts();

// Null: no fact of this version.
const Fact* FindFact(const std::string& name);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_FACT_H_
