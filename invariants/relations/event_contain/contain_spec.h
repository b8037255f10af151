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
//           | {"kind": "state", "of": "parameter.grad",
//              "is": "cleared" | "reached", "which": "every"}
//           | {"kind": "state", "of": "parameter", "is": "held",
//              "which": "every"}
//           | {"kind": "state", "of": "parameter", "is": "trainable",
//              "which": "some"}
//           | {"kind": "state", "of": "parameter", "is": "current",
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
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/rules/capture_needs.h"
#include "invariants/rules/fact_rules.h"
#include "invariants/rules/function_match.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Are gradients cleared there?
bool IsClear(const FunctionMatch& match);
// Are they computed there?
bool IsBackward(const FunctionMatch& match);

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
  kGradReached,  // gradients of held parameters, in the first steps
  kEndReached,   // the same of modules whose result nobody may want
  kGradCleared,  // gradients of held parameters are None or zero after the call
  // Parameters of the models that the optimizer trains, that got a gradient
  // since its last step: some optimizer holds them.
  kHeld,
  kTrainable,  // held parameters that require a gradient, when the step ends
  // Held parameters that were not replaced: one without a gradient, in no
  // module, while another one that nobody holds gets one.
  kCurrent,
};

// What an argument of the call must be.
struct CallWith {
  std::string argument;        // "": anything
  const Fact* fact = nullptr;  // of the window's call; null: `value`
  nlohmann::json value;
};

struct CallInWindow {
  FunctionMatch function;
  Binding binding = Binding::kAny;
  CallWith with = {};
  bool never = false;
};

struct StateInWindow {
  StateKind kind = StateKind::kDataChanged;
  bool every = false;  // else some
};

// A fact of every held parameter, or of every buffer of the models that the
// optimizer trains, has a value.
struct FactInWindow {
  WantedFact wanted;
  bool of_buffers = false;  // else of parameters
};

struct ContainSpec {
  bool span = false;
  FunctionMatch window = {};
  std::variant<CallInWindow, StateInWindow, FactInWindow> event = {};

  // Null: the event is another one.
  const CallInWindow* call() const { return std::get_if<CallInWindow>(&event); }
  bool Is(StateKind kind) const {
    const auto* state = std::get_if<StateInWindow>(&event);
    return state && state->kind == kind;
  }

  [[nodiscard]] static absl::StatusOr<ContainSpec> Parse(
      const nlohmann::json& parameters, const std::string& path);
  nlohmann::json ToJson() const;
  std::string Describe() const;
  void AddNeeds(CaptureNeeds* needs) const;
  // A call that something else makes; not what each step needs (gradients
  // cleared and computed, the held model and its wrapper called).
  bool is_structure() const;
  std::vector<const Fact*> Facts() const;
  std::vector<nlohmann::json> GuardsOf(const Fact& fact) const;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPEC_H_
