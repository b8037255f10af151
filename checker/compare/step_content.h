// What one process recorded in one step, by names that both runs share.
//
// Threads: plain values.
#ifndef TRAINCHECK_CHECKER_COMPARE_STEP_CONTENT_H_
#define TRAINCHECK_CHECKER_COMPARE_STEP_CONTENT_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "checker/compare/names.h"
#include "checker/compare/step_rung.h"
#include "invariants/trace/events.h"

namespace traincheck {

// When something was recorded, see PlaceInStep, and for which line.
struct Moment {
  uint32_t phase = 0;
  uint32_t position = 0;
  uint32_t site = 0;  // of the process's definitions; 0: not known
};

struct RecordedCall {
  NameId function = 0;
  NameId callee = 0;  // the function, and the module that it is called on
  Moment at;
  Call call;  // with what it tells
  CallOutcome outcome = CallOutcome::kUnknown;
  uint8_t output = 0;  // OutputFlag
};

struct RecordedState {
  NameId variable = 0;
  VariableKind kind = VariableKind::kUnknown;
  StatePoint point = StatePoint::kNone;
  uint8_t content = 0;  // StateContent
  uint64_t data = 0;    // digests; where content says that they are there
  uint64_t grad = 0;
  // No optimizer has stepped it in this step: its data is what the step began
  // with, though it was recorded later.
  bool is_as_begun = false;
  Moment at;
};

// A number that holds until another one is recorded.
struct RecordedScalar {
  NameId name = 0;
  StepRung rung = StepRung::kSetup;
  double value = 0;
  Moment at;
};

// Anything else that has a name and a content in words.
struct RecordedNote {
  StepRung rung = StepRung::kSetup;
  NameId name = 0;
  std::string value;
  // One that is absent was not looked at: it is unknown.
  bool absent_is_unknown = false;
  Moment at;
};

struct StepContent {
  uint64_t step = 0;
  // After the last step that closed.
  bool is_rest = false;
  // Was everything of the plan recorded, from its first record to its last?
  // Otherwise the skeleton alone.
  bool whole = true;
  // Why records of it are missing; "": none is. Then nothing of it is kept.
  std::string missing;
  // Functions whose calls are recorded besides those of modules; null: the
  // process has not said.
  std::shared_ptr<const std::set<NameId>> functions;
  uint32_t ring = 0;  // whose thread stepped an optimizer; 0: none

  std::vector<RecordedCall> calls;
  std::vector<RecordedState> states;
  std::vector<RecordedScalar> scalars;
  std::vector<RecordedNote> notes;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_STEP_CONTENT_H_
