#include "invariants/relations/call_count/count_spec.h"

namespace traincheck {

namespace {

constexpr char kStep[] = "step";
constexpr char kEpoch[] = "epoch";

// "per" is a text for a step or a pass, and an object for the call of another
// function, so its type is looked at before it is read.
void ReadPer(JsonReader* reader, CountSpec* spec) {
  const nlohmann::json& per = reader->Any("per");
  if (per == kStep || per == kEpoch) {
    spec->per = per == kStep ? CountPer::kStep : CountPer::kEpoch;
    return;
  }
  if (!per.is_object()) {
    reader->Fail("per", "neither \"step\", \"epoch\" nor a call");
    return;
  }
  // A reader of its own, so that unknown keys inside are errors with their
  // path.
  JsonReader call(per, reader->PathOf("per"));
  spec->per = CountPer::kCall;
  spec->window = ReadFunctionMatch(&call, "call");
  reader->Adopt(call.Finish());
}

void ReadCounts(JsonReader* reader, CountSpec* spec) {
  const nlohmann::json& counts = reader->Array("counts");
  if (!counts.is_array()) return;
  for (const nlohmann::json& count : counts) {
    // The text comes from a user: get<uint64_t>() would turn a negative number
    // or a fraction into another count without an error.
    if (!count.is_number_integer() || count < 0) {
      reader->Fail("counts", "not a list of counts");
      return;
    }
    spec->counts.insert(count.get<uint64_t>());
  }
  // A count that stands twice in the list is once in the set.
  if (spec->counts.size() != counts.size() || spec->counts.empty() ||
      spec->counts.size() > kMostCounts) {
    reader->Fail("counts", "not one to three different counts");
  }
}

std::string Words(uint64_t count) {
  if (count == 1) return "once";
  if (count == 2) return "twice";
  return std::to_string(count) + " times";
}

}  // namespace

nlohmann::json CountSpec::ToJson() const {
  nlohmann::json json = {{"function", traincheck::ToJson(function)},
                         {"counts", counts}};
  switch (per) {
    case CountPer::kStep:
      json["per"] = kStep;
      break;
    case CountPer::kEpoch:
      json["per"] = kEpoch;
      break;
    case CountPer::kCall:
      json["per"] = {{"call", traincheck::ToJson(window)}};
      break;
  }
  return json;
}

void CountSpec::AddNeeds(CaptureNeeds* needs) const {
  AddCalls(function, needs);
  if (Window()) AddCalls(*Window(), needs);
}

std::string CountSpec::CountWords() const {
  // "0 or 1 times" is said as people say it: "once or not at all".
  const bool may_be_left_out = counts.size() > 1 && counts.contains(0);
  std::string text;
  for (const uint64_t count : counts) {
    if (count == 0 && may_be_left_out) continue;
    if (!text.empty()) text += " or ";
    text += Words(count);
  }
  return may_be_left_out ? text + " or not at all" : text;
}

std::string CountSpec::Describe() const {
  const std::string calls = function.Describe() + " is called " + CountWords();
  switch (per) {
    case CountPer::kStep:
      return "In each step, " + calls + ".";
    case CountPer::kEpoch:
      return "In each pass over the training data, " + calls + ".";
    case CountPer::kCall:
      return "In each call of " + window.Describe() + ", " + calls + ".";
  }
  return "";
}

absl::StatusOr<CountSpec> CountSpec::Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
  CountSpec spec;
  JsonReader reader(parameters, path);
  spec.function = ReadFunctionMatch(&reader);
  ReadCounts(&reader, &spec);
  ReadPer(&reader, &spec);
  return reader.Finish(spec);
}

}  // namespace traincheck
