#include "invariants/relations/api_sequence/sequence_spec.h"

#include <set>

#include "invariants/trace/clock.h"

namespace traincheck {

namespace {

constexpr char kStep[] = "step";
constexpr char kRun[] = "run";

// Categories of which any function will do: a program that swaps one for
// another of them means the same.
bool IsStationByCategory(const std::string& category) {
  static const auto* const kCategories =
      new std::set<std::string>{"backward", "zero_grad"};
  return kCategories->count(category) > 0;
}

// Categories whose functions each mean something else, so that a station is one
// of them and not the category.
bool IsStationByName(const std::string& category) {
  static const auto* const kCategories =
      new std::set<std::string>{"load",
                                "save",
                                "clip_grad",
                                "destroy_process_group",
                                "init_process_group",
                                "load_state_dict",
                                "optimizer_init",
                                "optimizer_method",
                                "optimizer_step",
                                "scaler",
                                "scheduler",
                                "state_dict",
                                "train_mode",
                                "wrap"};
  return kCategories->count(category) > 0;
}

// The most general class whose method the function is (a role that contains a
// dot), so that a rule on one scheduler holds for all. Single words that
// methods share are too wide: with them the construction of a scheduler and its
// steps would be one station.
FunctionMatch BroadestMethod(const FunctionInfo& function) {
  FunctionMatch match{Level::kName, function.name};
  for (const std::string& role : function.roles) {
    if (role.find('.') != std::string::npos) match = {Level::kRole, role};
  }
  return match;
}

}  // namespace

std::optional<FunctionMatch> StationOf(const Call& call) {
  if (!call.function) return std::nullopt;
  const std::string& category = call.function->category.text();
  if (HasCategory(call, CallCategory::kForward)) {
    // Calls of parts come in the order of the model's code, and evaluations
    // wherever the program wants them.
    if (!IsTrainingRootForward(call)) return std::nullopt;
    return BroadestMethod(*call.function);
  }
  if (IsStationByCategory(category)) {
    if (!call.Is(kOutermost)) return std::nullopt;
    return FunctionMatch{Level::kCategory, category};
  }
  if (!IsStationByName(category)) return std::nullopt;
  // An optimizer's step may call the step of its base class, which is not a
  // step of its own.
  if (category == "optimizer_step" && !call.Is(kOutermost)) return std::nullopt;
  return BroadestMethod(*call.function);
}

nlohmann::json SequenceSpec::ToJson() const {
  nlohmann::json list = nlohmann::json::array();
  for (const FunctionMatch& function : functions) {
    list.push_back(traincheck::ToJson(function));
  }
  return {{"window", window == SequenceWindow::kStep ? kStep : kRun},
          {"functions", std::move(list)}};
}

void SequenceSpec::AddNeeds(CaptureNeeds* needs) const {
  for (const FunctionMatch& function : functions) AddCalls(function, needs);
}

std::string SequenceSpec::Describe() const {
  std::string order;
  for (const FunctionMatch& function : functions) {
    if (!order.empty()) order += " before ";
    order += function.Describe();
    if (&function == &functions.front()) order += " is called";
  }
  return (window == SequenceWindow::kStep ? "In each step, " : "In the run, ") +
         order +
         (functions.size() == 2 ? " (if both are called)."
                                : " (those of them that are called).");
}

absl::StatusOr<SequenceSpec> SequenceSpec::Parse(
    const nlohmann::json& parameters, const std::string& path) {
  SequenceSpec spec;
  JsonReader reader(parameters, path);
  const std::string window = reader.String("window");
  spec.window = window == kRun ? SequenceWindow::kRun : SequenceWindow::kStep;
  if (window != kStep && window != kRun) {
    reader.Fail("window", "neither \"step\" nor \"run\"");
  }
  const nlohmann::json& list = reader.Array("functions");
  std::set<FunctionMatch> once;
  for (size_t i = 0; list.is_array() && i < list.size(); ++i) {
    const auto function = FunctionMatchFromJson(
        list[i], reader.PathOf("functions[" + std::to_string(i) + "]"));
    reader.Adopt(function.status());
    if (!function.ok()) continue;
    spec.functions.push_back(*function);
    once.insert(*function);
  }
  // A function twice in the list would have to come before itself. Positions
  // are bits of 32 (Progress::seen).
  if (once.size() < 2 || once.size() != spec.functions.size() ||
      once.size() > kMostStations) {
    reader.Fail("functions", "not two to 32 different functions");
  }
  return reader.Finish(spec);
}

}  // namespace traincheck
