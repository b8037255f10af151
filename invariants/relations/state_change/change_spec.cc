#include "invariants/relations/state_change/change_spec.h"

#include "base/json_reader.h"
#include "invariants/facts/fact.h"
#include "invariants/facts/variable_state.h"
#include "invariants/rules/fact_needs.h"

namespace traincheck {

namespace {

constexpr char kParameter[] = "parameter.data";
constexpr char kBuffer[] = "buffer.data";
constexpr char kNever[] = "never";
constexpr char kEvery[] = "every";
constexpr char kFirstForward[] = "first_forward";

// "torch.nn.modules.batchnorm.BatchNorm2d.running_mean": a class and the name
// that its modules give the variable (VariableInfo::ClassRole).
bool IsClassMember(const std::string& role) {
  const size_t dot = role.rfind('.');
  return dot != std::string::npos && dot > 0 && dot + 1 < role.size();
}

void ReadWhat(JsonReader* reader, ChangeSpec* spec) {
  const std::string of = reader->String("of");
  spec->kind = of == kBuffer ? VariableKind::kBuffer : VariableKind::kParameter;
  if (of != kParameter && of != kBuffer) {
    reader->Fail("of", "neither \"parameter.data\" nor \"buffer.data\"");
  }
  if (!reader->Has("role")) {
    spec->variable = reader->String("variable");
    if (spec->variable.empty()) reader->Fail("variable", "empty");
    return;
  }
  spec->role = reader->String("role");
  if (spec->role == kFrozen && of != kParameter) {
    reader->Fail("role", "only parameters are \"frozen\"");
  } else if (spec->role != kFrozen && !IsClassMember(spec->role)) {
    reader->Fail("role", "neither \"frozen\" nor CLASS.NAME");
  }
}

// Read after kind and steps, which decide whether the key has a meaning.
void ReadAfter(JsonReader* reader, ChangeSpec* spec) {
  if (!reader->Has("after")) return;
  spec->after_forward = true;
  if (reader->String("after") != kFirstForward) {
    reader->Fail("after", "not \"first_forward\"");
  } else if (spec->kind != VariableKind::kBuffer || spec->steps == 0) {
    reader->Fail("after", "only of buffers that change every so many steps");
  }
}

void ReadHow(JsonReader* reader, ChangeSpec* spec) {
  const std::string changes = reader->String("changes");
  if (changes == kEvery) {
    spec->steps = reader->Unsigned("steps");
    if (spec->steps < 1 || spec->steps > kLongestPeriod) {
      reader->Fail("steps", "not 1 to 64");
    } else if (spec->role == kFrozen) {
      reader->Fail("changes", "what is frozen only \"never\"");
    }
  } else if (changes != kNever) {
    reader->Fail("changes", "neither \"never\" nor \"every\"");
  }
}

}  // namespace

// Asked at each record at a step's end, because programs freeze and unfreeze as
// they train. A copy (shadow_of) follows what it copies, frozen or not.
bool IsFrozen(const ProcessFacts& facts, uint32_t variable) {
  const VariableInfo* info = facts.definitions().Variable(variable);
  const VariableState* state = facts.Variable(variable);
  return info && state && info->kind == VariableKind::kParameter &&
         state->trainable() == Tri::kNo && info->shadow_of == 0 &&
         !facts.ownership().IsHeld(variable);
}

nlohmann::json ChangeSpec::ToJson() const {
  nlohmann::json json = {
      {"of", kind == VariableKind::kBuffer ? kBuffer : kParameter},
      {"changes", steps == 0 ? kNever : kEvery}};
  json[role.empty() ? "variable" : "role"] = role.empty() ? variable : role;
  if (steps > 0) json["steps"] = steps;
  if (after_forward) json["after"] = kFirstForward;
  return json;
}

// One point is enough: a change is found by comparing the ends of two steps.
void ChangeSpec::AddNeeds(CaptureNeeds* needs) const {
  needs->State(ToJson().at("of"), "step_end");
  if (after_forward) {
    traincheck::AddNeeds(*FindFact("buffer.written_by_forward"), needs);
  }
}

std::string ChangeSpec::Describe() const {
  if (role == kFrozen) {
    return "A parameter that requires no gradient and is held by no optimizer "
           "does not change.";
  }
  const std::string& who = role.empty() ? variable : role;
  if (steps == 0) return who + " does not change during training.";
  std::string text = who + " changes in ";
  text +=
      steps == 1 ? "each step" : "one of " + std::to_string(steps) + " steps";
  if (kind == VariableKind::kParameter) {
    text += ", unless its learning rate is 0";
  } else if (after_forward) {
    text += " after the first training forward";
  }
  return text + ".";
}

bool ChangeSpec::Matches(const ProcessFacts& facts,
                         uint32_t variable_id) const {
  if (role == kFrozen) return IsFrozen(facts, variable_id);
  const VariableInfo* info = facts.definitions().Variable(variable_id);
  if (!info || info->kind != kind) return false;
  return role.empty() ? info->FullName() == variable
                      : info->ClassRole() == role;
}

absl::StatusOr<ChangeSpec> ChangeSpec::Parse(const nlohmann::json& parameters,
                                             const std::string& path) {
  ChangeSpec spec;
  JsonReader reader(parameters, path);
  ReadWhat(&reader, &spec);
  ReadHow(&reader, &spec);
  ReadAfter(&reader, &spec);
  return reader.Finish(spec);
}

}  // namespace traincheck
