#include "invariants/relations/reproduced_steps/course_spec.h"

#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/json_reader.h"

namespace traincheck {

namespace {

// Always 16 digits: FromHex takes no other length.
std::string Hex(uint64_t digest) { return absl::StrFormat("%016x", digest); }

std::optional<uint64_t> FromHex(const nlohmann::json& json) {
  uint64_t digest = 0;
  if (!json.is_string()) return std::nullopt;
  const auto& text = json.get_ref<const std::string&>();
  // One way to write a digest: ids of rules are computed from their text.
  if (text.size() != 16 || !absl::SimpleHexAtoi(text, &digest)) {
    return std::nullopt;
  }
  return digest;
}

// In the order of ParseStep. Only complete steps are in a rule, so `complete`
// is not written.
nlohmann::json JsonOf(const StepDigest& step) {
  return {Hex(step.settings), Hex(step.rows), Hex(step.weights),
          Hex(step.gradients)};
}

std::optional<StepDigest> ParseStep(const nlohmann::json& json) {
  if (!json.is_array() || json.size() != 4) return std::nullopt;
  StepDigest step{.complete = true};
  uint64_t* const digests[] = {&step.settings, &step.rows, &step.weights,
                               &step.gradients};
  for (size_t i = 0; i < json.size(); ++i) {
    const std::optional<uint64_t> digest = FromHex(json[i]);
    if (!digest) return std::nullopt;
    *digests[i] = *digest;
  }
  return step;
}

}  // namespace

nlohmann::json CourseSpec::ToJson() const {
  nlohmann::json list = nlohmann::json::array();
  for (const StepDigest& step : steps) {
    list.push_back(JsonOf(step));
  }
  nlohmann::json generators = nlohmann::json::object();
  for (const auto& [name, digest] : start.generators) {
    generators[name] = Hex(digest);
  }
  return {{"start",
           {{"host", start.host},
            {"rank", start.rank},
            {"generators", std::move(generators)}}},
          {"steps", std::move(list)}};
}

std::string CourseSpec::Describe() const {
  std::string text =
      "A run that begins with the weights, random numbers and data of the "
      "reference run";
  if (!start.rank.empty()) text += " (rank " + start.rank + ")";
  return text + " has the same weights and gradients in its first " +
         std::to_string(steps.size()) + " optimizer steps.";
}

// Rates, rows and generators need no plan of the rule.
void CourseSpec::AddNeeds(CaptureNeeds* needs) {
  needs->State("parameter.data", "pre_step");
  needs->State("parameter.grad", "pre_step");
}

absl::StatusOr<CourseSpec> CourseSpec::Parse(const nlohmann::json& parameters,
                                             const std::string& path) {
  CourseSpec spec;
  JsonReader reader(parameters, path);
  JsonReader start(reader.Object("start"), reader.PathOf("start"));
  spec.start.host = start.String("host");
  // A process without a place is compared with one without a place.
  spec.start.rank = start.OptionalString("rank");
  const nlohmann::json& generators = start.Object("generators");
  for (const auto& [name, digest] : generators.items()) {
    const std::optional<uint64_t> known = FromHex(digest);
    if (!known)
      start.Fail("generators", name + " is not 16 hexadecimal digits");
    spec.start.generators[name] = known.value_or(0);
  }
  reader.Adopt(start.Finish());
  const nlohmann::json& steps = reader.Array("steps");
  if (!steps.is_array() || steps.empty()) reader.Fail("steps", "has no step");
  for (const nlohmann::json& step : steps) {
    const std::optional<StepDigest> digest = ParseStep(step);
    if (!digest) {
      reader.Fail("steps",
                  "not a list of four digests (settings, rows, weights, "
                  "gradients) of 16 hexadecimal digits for each step");
      break;
    }
    spec.steps.push_back(*digest);
  }
  return reader.Finish(spec);
}

}  // namespace traincheck
