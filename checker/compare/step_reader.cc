#include "checker/compare/step_reader.h"

#include <algorithm>

#include "checker/compare/value_words.h"
#include "checker/incidents/ladder.h"
#include "invariants/facts/observations.h"
#include "invariants/facts/sight.h"

namespace traincheck {
namespace {

// "Adam" of "torch.optim.adam.Adam".
std::string ShortName(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

StepRung StepRungOf(Rung rung) {
  switch (rung) {
    case Rung::kSetup:
      return StepRung::kSetup;
    case Rung::kMode:
      return StepRung::kMode;
    case Rung::kData:
      return StepRung::kData;
    case Rung::kCall:
      return StepRung::kCall;
    case Rung::kResult:
      return StepRung::kResult;
    case Rung::kCollective:
      return StepRung::kCollective;
    case Rung::kGradient:
      return StepRung::kGradient;
    // Facts stand on none of the other two (ladder.cc); they are here for the
    // compiler.
    case Rung::kUpdate:
    case Rung::kReplicas:
    case Rung::kTotals:
      return StepRung::kUpdate;
  }
  return StepRung::kUpdate;
}

// What a checkpoint gives is what the step goes on with.
StepRung RungOfEntry(StatePoint point) {
  const bool comes_in =
      point == StatePoint::kLoad || point == StatePoint::kLoadStateDict;
  return comes_in ? StepRung::kWeights : StepRung::kCheckpoint;
}

bool IsOfModel(VariableKind kind) {
  return kind == VariableKind::kParameter || kind == VariableKind::kBuffer;
}

}  // namespace

void StepReader::End() {
  reader_.End();
  open_.is_rest = true;
  CloseStep();
}

StepContent StepReader::Take() {
  StepContent step = std::move(closed_.front());
  closed_.pop_front();
  return step;
}

void StepReader::BeginStep(uint64_t step) {
  open_ = StepContent();
  open_.step = step;
  open_.whole = whole_;
  ++step_serial_;
  phase_ends_ = false;
  phase_ = position_ = 0;
  updated_.clear();
  // The number of the step that opens is that of the steps that have closed.
  steps_ = std::max(steps_, step);
}

void StepReader::CloseStep() {
  open_.functions = functions_;
  closed_.push_back(std::move(open_));
}

void StepReader::FollowClock() {
  const std::optional<uint64_t> step = clock_.known_step();
  // After a gap the number is unknown until the agent's next mark. Until then
  // the open step stays open, and keeps nothing.
  if (!step.has_value() || *step == open_.step) return;
  CloseStep();
  BeginStep(*step);
}

Moment StepReader::Now(const Call* call) {
  return {phase_, position_++, call ? call->site : 0};
}

NameId StepReader::Callee(const Call& call) {
  const auto [at, is_new] =
      callees_.try_emplace({call.function_id, call.object});
  if (is_new) {
    const ObjectInfo* object = definitions().Object(call.object);
    const bool is_module = object && object->kind == ObjectKind::kModule;
    at->second = names_.Id(is_module ? call.function->name + " of " +
                                           ObjectLabel(call.object)
                                     : call.function->name);
  }
  return at->second;
}

std::string StepReader::ObjectLabel(uint32_t id) const {
  const ObjectInfo* object = definitions().Object(id);
  if (object == nullptr) return "an unknown object";
  const ObjectInfo* root = definitions().Object(object->root);
  if (root == nullptr || object->path.empty()) {
    return ShortName(object->class_name);
  }
  return ShortName(root->class_name) + "." + object->path;
}

void StepReader::OnCallBegin(const Call& call) {
  // First the clock: a call that closes a step by its begin belongs to the step
  // that it opens.
  clock_.OnCallBegin(call);
  FollowClock();
  // Not at the end of the call: states that are recorded as a backward or a
  // step ends belong to its phase.
  if (phase_ends_) ++phase_;
  phase_ends_ = false;
  site_ = call.site;
  if (!keeps() || !call.function) return;
  if (IsOptimizerStep(call)) DefineHolds(call.object);
  if (!options_.calls) return;
  // By number and place instead of by pointer: the vector grows, and the step
  // may close or be thrown away while the call is open.
  open_calls_[{call.ring, call.number}] = {step_serial_, open_.calls.size()};
  open_.calls.push_back({.function = names_.Id(call.function->name),
                         .callee = Callee(call),
                         .at = Now(&call),
                         .call = call});
}

void StepReader::OnCallEnd(const Call& call, CallOutcome outcome,
                           uint8_t output_flags) {
  clock_.OnCallEnd(call);
  if (IsOptimizerStep(call)) open_.ring = call.ring;
  const bool is_backward =
      HasCategory(call, CallCategory::kBackward) && call.Is(kOutermost);
  phase_ends_ |= is_backward || IsOptimizerStep(call);
  const auto found = open_calls_.find({call.ring, call.number});
  if (found == open_calls_.end()) return;
  const OpenCall at = found->second;
  open_calls_.erase(found);
  // What a call that a step closed in returns belongs to neither step.
  if (!keeps() || at.step_serial != step_serial_) return;
  RecordedCall& recorded = open_.calls[at.index];
  recorded.call.result = call.result;
  recorded.outcome = outcome;
  recorded.output = output_flags;
}

NameId StepReader::VariableName(uint32_t id, const VariableInfo& variable) {
  const auto [at, is_new] = variable_names_.try_emplace(id);
  // Texts are made once for each variable, which has several states in each
  // step.
  if (is_new) at->second = names_.Id(variable.FullName());
  return at->second;
}

void StepReader::OnState(const StateEvent& event) {
  if (!keeps() || !event.variable) return;
  const VariableInfo& variable = *event.variable;
  const Moment now = Now(event.call);
  if (event.point == StatePoint::kConstruction && IsOfModel(variable.kind)) {
    open_.notes.push_back(
        {.rung = StepRung::kSetup,
         .name = names_.Id("the tensor " + variable.FullName()),
         .value = VariableWords(variable),
         .absent_is_unknown = true,
         .at = now});
  }
  open_.states.push_back({.variable = VariableName(event.variable_id, variable),
                          .kind = variable.kind,
                          .point = event.point,
                          .content = event.content,
                          .data = event.data,
                          .grad = event.grad,
                          .is_as_begun = IsAsBegun(event),
                          .at = now});
}

// Gradients are made and an optimizer is about to step, or clips: what it steps
// with is what the step began with.
bool StepReader::IsAsBegun(const StateEvent& event) {
  if (event.variable->kind != VariableKind::kParameter) return false;
  switch (event.point) {
    case StatePoint::kBackwardEnd:
    case StatePoint::kPreClip:
    case StatePoint::kPostClip:
    case StatePoint::kPreStep:
      return updated_.count(event.variable_id) == 0;
    case StatePoint::kPostStep:
      updated_.insert(event.variable_id);
      return false;
    default:
      return false;
  }
}

void StepReader::OnScalar(const ScalarEvent& event) {
  // Limits of the agent's sight say nothing of the training, and a line has
  // another number where one was added before it.
  if (!keeps() || Sight::IsAboutSight(*event.name)) return;
  if (Observations::IsSite(*event.name)) return;
  std::string name = *event.name;
  const ObjectInfo* object = definitions().Object(event.object);
  if (object) name += " of " + ObjectLabel(event.object);
  if (object && object->kind == ObjectKind::kOptimizer) {
    name += ", parameter group " + std::to_string(event.group);
  }
  // A scalar with a fact's name is what the agent itself saw at this moment.
  // Unlike a learning rate it does not hold until the next one, so it is a
  // note.
  if (const std::optional<Rung> rung = RungOfFact(*event.name)) {
    open_.notes.push_back({.rung = StepRungOf(*rung),
                           .name = names_.Id("what the agent saw: " + name),
                           .value = event.value == 0 ? "no" : "yes",
                           .absent_is_unknown = true,
                           .at = Here()});
    return;
  }
  open_.scalars.push_back({.name = names_.Id(name),
                           .rung = RungOfScalar(event.point),
                           .value = event.value,
                           .at = Here()});
}

void StepReader::OnFunctionMark(const MarkEvent& mark) {
  const auto id = static_cast<uint32_t>(mark.value);
  const FunctionInfo* function = definitions().Function(id);
  if (function == nullptr) return;
  // Copied on write: steps that have closed share the list that held for them.
  auto functions = functions_ ? std::make_shared<std::set<NameId>>(*functions_)
                              : std::make_shared<std::set<NameId>>();
  if (mark.kind == MarkKind::kFunctionOn) {
    functions->insert(names_.Id(function->name));
  } else {
    functions->erase(names_.Id(function->name));
  }
  functions_ = std::move(functions);
}

void StepReader::OnMark(const MarkEvent& mark) {
  clock_.OnMark(mark);
  FollowClock();
  switch (mark.kind) {
    case MarkKind::kCaptureMode:
      // Stands between two steps: it holds for all of the one that begins.
      whole_ = mark.value == static_cast<uint64_t>(CaptureMode::kAll);
      has_modes_ = true;
      open_.whole = whole_;
      return;
    case MarkKind::kFunctionOn:
    case MarkKind::kFunctionOff:
      return OnFunctionMark(mark);
    case MarkKind::kStepSkipped:
      return AddNote(
          {.rung = StepRung::kUpdate,
           .name = names_.Id("a step of " + ObjectLabel(mark.object) +
                             " that its GradScaler leaves out"),
           .value = "left out",
           .at = {}},
          mark.call);
    default:
      return;
  }
}

void StepReader::AddNote(RecordedNote note, const Call* call) {
  if (!keeps()) return;
  note.at = Now(call);
  open_.notes.push_back(std::move(note));
}

// Compared by its number within its group and by the ranks of the group: ids of
// groups differ between two runs.
void StepReader::OnCollective(const CollectiveEvent& event) {
  if (!event.call || !event.call->function || !event.info) return;
  std::string ranks;
  for (const int32_t rank : event.info->ranks) {
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  AddNote({.rung = StepRung::kCollective,
           .name = names_.Id("the collective " + event.call->function->name),
           .value = "number " + std::to_string(event.sequence) +
                    " of the group of ranks " + ranks,
           .at = {}},
          event.call);
}

// Contexts (autocast and others) as they are entered; that they are left is not
// compared.
void StepReader::OnContext(const ContextEvent& event) {
  if (!event.enter || !event.function) return;
  AddNote({.rung = StepRung::kMode,
           .name = names_.Id("the context " + event.function->name),
           .value = ContentWords(event.content, definitions()),
           .absent_is_unknown = false,
           .at = {}},
          nullptr);
}

void StepReader::OnCheckpointEntry(const CheckpointEntryEvent& event) {
  const char* const place =
      RungOfEntry(event.point) == StepRung::kWeights ? "loaded" : "saved";
  // It says only how many entries the record does not name.
  if (event.left_out > 0) return;
  AddNote({.rung = RungOfEntry(event.point),
           .name = names_.Id(std::string("the entry ") + *event.key +
                             " that is " + place),
           .value = EntryWords(event),
           .at = {}},
          event.call);
}

void StepReader::OnGap(const std::string& reason) {
  clock_.OnGap();
  // A mark that says that less is recorded from now on may be missing. A
  // process that has never sampled its steps is taken to go on so.
  functions_ = nullptr;
  whole_ &= !has_modes_;
  if (!keeps()) return;
  const uint64_t step = open_.step;
  // What is missing may be anything of this step, so that what is absent would
  // look like a difference. All of it is thrown away, and nothing more of it
  // kept.
  BeginStep(step);
  open_.missing = reason;
}

void StepReader::OnDefinition(RecordType type, uint32_t id) {
  // A definition that comes again may give it another name.
  if (type == RecordType::kVariableDef) variable_names_.erase(id);
}

// Said at its first step: by then the definitions are there, whichever batch
// they came in.
void StepReader::DefineHolds(uint32_t optimizer) {
  if (!optimizers_.insert(optimizer).second) return;
  for (const auto& [key, variables] : definitions().holds()) {
    if (key.first != optimizer) continue;
    std::vector<std::string> held;
    for (const uint32_t id : variables) {
      const VariableInfo* variable = definitions().Variable(id);
      if (variable) held.push_back(variable->FullName());
    }
    std::sort(held.begin(), held.end());
    std::string value;
    for (const std::string& name : held) value += name + "\n";
    open_.notes.push_back({.rung = StepRung::kSetup,
                           .name = names_.Id("what " + ObjectLabel(optimizer) +
                                             " holds in parameter group " +
                                             std::to_string(key.second)),
                           .value = std::move(value),
                           .at = Here()});
  }
}

}  // namespace traincheck
