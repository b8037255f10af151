#include "invariants/relations/consistent/state_spec.h"

namespace traincheck {

namespace {

struct Point {
  StatePoint point;
  const char* name;
  const char* when;
};

// Gradients are comparable at sync boundaries only, so that of the points
// before a step only pre_step is one on which a rule may stand.
constexpr Point kPoints[] = {
    {StatePoint::kForwardBegin, "forward_begin",
     "when a step's first forward of the wrapped model begins"},
    {StatePoint::kPreStep, "pre_step", "when an optimizer step begins"},
    {StatePoint::kPostStep, "post_step", "when an optimizer step ends"},
};

struct Of {
  VariableKind kind;
  bool grad;
  const char* name;
  const char* words;
};

// The kinds of state that rules compare. Gradients of buffers and of optimizer
// state do not exist.
constexpr Of kOfs[] = {
    {VariableKind::kParameter, false, "parameter.data", "parameters"},
    {VariableKind::kParameter, true, "parameter.grad",
     "gradients of parameters"},
    {VariableKind::kBuffer, false, "buffer.data", "buffers"},
    {VariableKind::kOptimizerState, false, "optimizer_state.data",
     "optimizer state"},
};

// Null for pairs that are not compared (gradients of buffers).
const Of* Find(const StateSpec& spec) {
  for (const Of& of : kOfs) {
    if (of.kind == spec.kind && of.grad == spec.grad) return &of;
  }
  return nullptr;
}

}  // namespace

const char* PointName(StatePoint point) {
  for (const Point& entry : kPoints) {
    if (entry.point == point) return entry.name;
  }
  return nullptr;
}

StatePoint PointFromName(const std::string& name) {
  for (const Point& entry : kPoints) {
    if (name == entry.name) return entry.point;
  }
  return StatePoint::kNone;
}

std::string StateSpec::Of() const {
  const auto* of = Find(*this);
  return of ? of->name : "";
}

std::string StateSpec::Describe() const {
  const auto* of = Find(*this);
  std::string text = of ? of->words : "";
  for (const Point& entry : kPoints) {
    if (entry.point == point) text += std::string(" ") + entry.when;
  }
  return text;
}

RankComparison::Words WordsOf(const StateSpec& spec) {
  // A forward's block is of a wrapper, the others are of an optimizer.
  return {.what = spec.Describe(),
          .variables = true,
          .ordinals = spec.point == StatePoint::kForwardBegin
                          ? RankComparison::Ordinals::kOther
                          : RankComparison::Ordinals::kOptimizers};
}

StateSpec ReadStateSpec(JsonReader* reader) {
  StateSpec spec;
  const std::string of = reader->String("of");
  bool found = false;
  for (const auto& entry : kOfs) {
    if (of != entry.name) continue;
    spec.kind = entry.kind;
    spec.grad = entry.grad;
    found = true;
  }
  // Reading goes on: after the first error, which Finish returns, the reader
  // gives empty values.
  if (!found) reader->Fail("of", "not a kind of state of this version");
  spec.point = PointFromName(reader->String("point"));
  if (spec.point == StatePoint::kNone) {
    reader->Fail("point", "not a state point on which rules stand");
  } else if (spec.grad && spec.point != StatePoint::kPreStep) {
    reader->Fail("point", "gradients are compared at pre_step only");
  } else if (spec.kind == VariableKind::kOptimizerState &&
             spec.point != StatePoint::kPostStep) {
    reader->Fail("point", "optimizer state is recorded at post_step only");
  }
  return spec;
}

void WriteStateSpec(const StateSpec& spec, nlohmann::json* json) {
  (*json)["of"] = spec.Of();
  (*json)["point"] = PointName(spec.point);
}

}  // namespace traincheck
