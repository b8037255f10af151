// The parameters of EventContain: which window contains which event.
//
//   {"window": {"kind": "call" | "span", "function": FUNCTION},
//    "event": {"kind": "call", "function": FUNCTION, "binding": BINDING,
//              "with": WITH, "happens": "never"}
//           | {"kind": "state", "of": "parameter.data", "is": "changed",
//              "which": "some" | "every"}
//           | {"kind": "state", "of": "parameter.data", "is": "kept",
//              "which": "every"}
//           | {"kind": "state", "of": "parameter.grad",
//              "is": "changed" | "nonzero", "which": "some"}
//           | {"kind": "state", "of": "parameter.grad", "is": "cleared",
//              "which": "every"}
//           | {"kind": "state", "of": "parameter", "is": "held",
//              "which": "every"}
//           | {"kind": "state", "of": "parameter" | "buffer",
//              "fact": "grad.finite", "value": true, "which": "every"}}
//   FUNCTION: see function_match.h
//   WITH: {"argument": "training", "fact": "call.module_training"}, a fact of
//     the window's call, or {"argument": "val", "value": 0.0}; may be absent
//   "happens" may be absent: then it does
//
// A *call* window is one call of the function. A *span* runs from the end of
// one step of an optimizer (its construction, for the first) to the end of
// its next; the function is the step.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/rules/fact_rules.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/relation.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Are gradients cleared there?
bool IsClear(const FunctionMatch& match);

// How the object of the call that must happen belongs to the window.
enum class Binding {
  kAny,      // not at all
  kSelf,     // it is the window's object
  kWrapped,  // the window's object wraps it
  kHeld,     // the optimizer itself, or a module whose variables it holds
  kWrapper,  // a wrapper (DDP) of a module whose variables it holds
};

enum class StateKind {
  kDataChanged,  // data of held parameters, from pre_step to post_step
  kDataKept,     // the same, from a post_step to the next pre_step
  kGradNonzero,  // gradients of held parameters, at pre_step
  kGradChanged,  // gradients of any parameter, in a backward
  kGradCleared,  // gradients of held parameters are None or zero after the call
  // Parameters of the models that the optimizer trains, that got a gradient
  // since its last step: some optimizer holds them.
  kHeld,
  // A fact of held parameters, or of buffers of the models that the optimizer
  // trains, has a value.
  kFact,
};

// What an argument of the call must be.
struct CallWith {
  std::string argument;        // "": anything
  const Fact* fact = nullptr;  // of the window's call; null: `value`
  nlohmann::json value;
};

struct ContainSpec {
  bool span = false;
  FunctionMatch window;
  bool is_call = true;
  // is_call
  FunctionMatch event;
  Binding binding = Binding::kAny;
  CallWith with;
  bool never = false;
  // !is_call
  StateKind state = StateKind::kDataChanged;
  bool every = false;  // else some
  // kFact
  WantedFact wanted;
  bool of_buffers = false;  // else of parameters

  nlohmann::json ToJson() const;
  std::string Describe() const;
};

[[nodiscard]] absl::StatusOr<ContainSpec> ContainSpecFromJson(
    const nlohmann::json& json, const std::string& path);

// A rule of this relation, ready to be judged.
struct ContainRule {
  size_t index = 0;
  const Rule* rule = nullptr;
  ContainSpec spec;
  std::vector<const Fact*> facts;  // FactsFor
};

// What must be recorded for such a rule to be decided.
void AddContainNeeds(const ContainSpec& spec, CaptureNeeds* needs);

// Facts over which the precondition of such a rule may be learned.
std::vector<const Fact*> ContainFacts(const ContainSpec& spec);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPEC_H_
