#include "invariants/rules/capture_plan.h"

#include <array>

#include "base/json_reader.h"

namespace traincheck {

namespace {

constexpr uint64_t kFormat = 1;
constexpr std::array kModes = {"full", "selective", "sampled", "off"};
constexpr uint64_t kMaxEvery = uint64_t{1} << 32;
// The agent's own reader has this bound (agent/python/hooks/plan.py): a plan
// that is taken here is not refused there.
constexpr uint64_t kMaxZoomSteps = 1024;

void CheckNames(const nlohmann::json& rule, const char* key,
                JsonReader* reader) {
  if (rule.contains(key)) reader->Strings(key);
}

void CheckFlag(const nlohmann::json& rule, const char* key,
               JsonReader* reader) {
  if (rule.contains(key) && !reader->Any(key).is_boolean()) {
    reader->Fail(key, "neither true nor false");
  }
}

absl::Status CheckRule(const nlohmann::json& rule, const std::string& path) {
  JsonReader reader(rule, path);
  if (reader.String("function").empty()) {
    reader.Fail("function", "names no function");
  }
  // What is not an object was refused by the reader, and has no keys to look
  // for.
  if (rule.is_object()) {
    const auto arguments = rule.find("arguments");
    if (arguments != rule.end() && *arguments == "*") {
      // Read, because Finish refuses keys that nobody has read.
      reader.Any("arguments");
    } else {
      CheckNames(rule, "arguments", &reader);
    }
    CheckNames(rule, "texts", &reader);
    CheckNames(rule, "digests", &reader);
    CheckFlag(rule, "returns", &reader);
    CheckFlag(rule, "autograd", &reader);
  }
  return reader.Finish();
}

// A misspelt kind or point would be recorded nowhere, and the rules on it would
// be unknown in the whole run.
absl::Status CheckState(const nlohmann::json& state, const std::string& path) {
  JsonReader reader(state, path);
  for (const auto& [value, points] : state.items()) {
    if (StateValueNames().count(value) == 0) {
      reader.Fail(value, "not a kind of state of this version");
    }
    for (const std::string& point : reader.Strings(value.c_str())) {
      if (StatePointNames().count(point) > 0) continue;
      reader.Fail(value,
                  "\"" + point.substr(0, 64) + "\" is not a state point");
    }
  }
  return reader.Finish();
}

absl::Status CheckSample(const nlohmann::json& sample,
                         const std::string& path) {
  JsonReader reader(sample, path);
  const uint64_t every = reader.Unsigned("every");
  // Powers of two, so that of any two cycles one divides the other and replicas
  // are compared at the steps of the slower rank.
  if (every == 0 || (every & (every - 1)) != 0 || every > kMaxEvery) {
    reader.Fail("every", "not a power of two up to 2^32");
  }
  // Read for its type alone, and because Finish refuses keys that nobody has
  // read.
  if (sample.contains("warm_up")) reader.Unsigned("warm_up");
  return reader.Finish();
}

void CheckCalls(const std::string& path, JsonReader* reader) {
  if (!reader->Has("calls")) return;
  const nlohmann::json& calls = reader->Array("calls");
  for (size_t i = 0; i < calls.size(); ++i) {
    reader->Adopt(
        CheckRule(calls[i], path + "calls[" + std::to_string(i) + "]"));
  }
}

// A zoom records more than the plan for some steps, when the daemon looks into
// an incident. It ends by itself, so its length is bounded.
absl::Status CheckZoom(const nlohmann::json& zoom) {
  JsonReader reader(zoom, "zoom");
  const uint64_t steps = reader.Unsigned("steps");
  if (steps == 0 || steps > kMaxZoomSteps) {
    reader.Fail("steps", "not a number of 1 to 1024");
  }
  CheckCalls("zoom.", &reader);
  CheckNames(zoom, "variables", &reader);
  if (reader.Has("state")) {
    const nlohmann::json& state = reader.Object("state");
    if (state.is_object()) reader.Adopt(CheckState(state, "zoom.state"));
  }
  CheckFlag(zoom, "generators", &reader);
  return reader.Finish();
}

void CheckMode(JsonReader* reader) {
  if (!reader->Has("mode")) return;
  const std::string mode = reader->String("mode");
  if (mode == "sampled" && !reader->Has("sample")) {
    reader->Fail("sample", "missing: a sampled plan needs it");
  }
  for (const char* known : kModes) {
    if (mode == known) return;
  }
  reader->Fail("mode", "none of full, selective, sampled, off");
}

}  // namespace

const std::set<std::string>& StateValueNames() {
  static const auto* const kNames =
      new std::set<std::string>{"parameter.data", "parameter.grad",
                                "buffer.data", "optimizer_state.data"};
  return *kNames;
}

const std::set<std::string>& StatePointNames() {
  static const auto* const kNames = new std::set<std::string>{
      "construction", "wrap_end",  "forward_begin", "backward_end",
      "pre_clip",     "post_clip", "pre_step",      "post_step",
      "grad_clear",   "step_end",  "save",          "load"};
  return *kNames;
}

// As strict as the agent, which is switched off by a plan that it cannot read:
// the training would go on unrecorded.
absl::StatusOr<nlohmann::json> PlanFromJsonUntrusted(const std::string& text) {
  if (text.size() > kMaxCapturePlanBytes) {
    return absl::InvalidArgumentError(
        "document: " + std::to_string(text.size()) +
        " bytes, a plan has at most " + std::to_string(kMaxCapturePlanBytes));
  }
  absl::StatusOr<nlohmann::json> plan = ParseJsonUntrusted(text);
  if (!plan.ok()) return plan.status();
  JsonReader reader(*plan, "");
  if (reader.Unsigned("format") != kFormat) reader.Fail("format", "not 1");
  if (reader.Has("version")) reader.Unsigned("version");
  CheckMode(&reader);
  CheckCalls("", &reader);
  for (const char* key : {"state", "statistics", "rows"}) {
    if (!reader.Has(key)) continue;
    const nlohmann::json& state = reader.Object(key);
    if (state.is_object()) reader.Adopt(CheckState(state, key));
  }
  if (reader.Has("generators")) CheckFlag(*plan, "generators", &reader);
  if (reader.Has("sample")) {
    const nlohmann::json& sample = reader.Object("sample");
    if (sample.is_object()) reader.Adopt(CheckSample(sample, "sample"));
  }
  if (reader.Has("zoom")) {
    const nlohmann::json& zoom = reader.Object("zoom");
    if (zoom.is_object()) reader.Adopt(CheckZoom(zoom));
  }
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return plan;
}

std::string PlanText(nlohmann::json plan, uint64_t version) {
  plan["version"] = version;
  // A text that is not UTF-8 would otherwise throw.
  return plan.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace traincheck
