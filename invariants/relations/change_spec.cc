#include "invariants/relations/change_spec.h"

#include "invariants/json_reader.h"

namespace traincheck {

namespace {

constexpr char kParameter[] = "parameter.data";
constexpr char kBuffer[] = "buffer.data";
constexpr char kFrozen[] = "frozen";
constexpr char kNever[] = "never";
constexpr char kEvery[] = "every";

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
  if (reader->String("role") != kFrozen || of != kParameter) {
    reader->Fail("role", "only \"frozen\" parameters");
  }
}

void ReadHow(JsonReader* reader, ChangeSpec* spec) {
  const std::string changes = reader->String("changes");
  if (changes == kEvery) {
    spec->steps = reader->Unsigned("steps");
    if (spec->steps < 1 || spec->steps > kLongestPeriod) {
      reader->Fail("steps", "not 1 to 64");
    } else if (spec->variable.empty()) {
      reader->Fail("changes", "a role only \"never\"");
    }
  } else if (changes != kNever) {
    reader->Fail("changes", "neither \"never\" nor \"every\"");
  }
}

}  // namespace

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
  if (variable.empty()) {
    json["role"] = kFrozen;
  } else {
    json["variable"] = variable;
  }
  if (steps > 0) json["steps"] = steps;
  return json;
}

void ChangeSpec::AddNeeds(CaptureNeeds* needs) const {
  needs->State(ToJson().at("of"), "step_end");
}

std::string ChangeSpec::Describe() const {
  if (variable.empty()) {
    return "A parameter that requires no gradient and is held by no optimizer "
           "does not change.";
  }
  if (steps == 0) return variable + " does not change during training.";
  if (steps == 1) {
    return variable + " changes in each step, unless its learning rate is 0.";
  }
  return variable + " changes in one of " + std::to_string(steps) + " steps.";
}

bool ChangeSpec::Matches(const ProcessFacts& facts,
                         uint32_t variable_id) const {
  if (variable.empty()) return IsFrozen(facts, variable_id);
  const VariableInfo* info = facts.definitions().Variable(variable_id);
  return info && info->kind == kind && info->FullName() == variable;
}

ChangeSpec ChangeSpec::Parse(const nlohmann::json& parameters,
                             const std::string& path, absl::Status* status) {
  ChangeSpec spec;
  JsonReader reader(parameters, path);
  ReadWhat(&reader, &spec);
  ReadHow(&reader, &spec);
  *status = reader.Finish();
  return spec;
}

}  // namespace traincheck
