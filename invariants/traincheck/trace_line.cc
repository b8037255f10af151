#include "invariants/traincheck/trace_line.h"

#include <algorithm>
#include <limits>

#include "base/json_reader.h"

namespace traincheck {

namespace {

using nlohmann::json;

struct LineType {
  const char* name;
  TraceLineKind kind;
};

constexpr LineType kTypes[] = {
    {"function_call (pre)", TraceLineKind::kCallBegin},
    {"function_call (post)", TraceLineKind::kCallEnd},
    {"function_call (post) (exception)", TraceLineKind::kCallRaised},
    {"state_change", TraceLineKind::kState},
};

// Any and Object return references, so what stands for a missing key must
// outlive every line.
const json& Null() {
  static const auto* const kNull = new json;
  return *kNull;
}

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(what);
}

// `max` bounds what the caller computes with. An integer that no 64 bits hold
// is a float for the library, and fails, too.
absl::StatusOr<uint64_t> Number(const json& line, const char* key,
                                uint64_t max) {
  const auto found = line.find(key);
  if (found == line.end()) return Bad(std::string(key) + ": missing");
  if (!found->is_number_unsigned() || found->get<uint64_t>() > max) {
    return Bad(std::string(key) + ": not an integer from 0 to " +
               std::to_string(max));
  }
  return found->get<uint64_t>();
}

// TraceLine::call() and function(), and the states' names, rely on this check:
// they are read without another one.
absl::Status NeedText(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end()) return Bad(std::string(key) + ": missing");
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
    return Bad(std::string(key) + ": not a text");
  }
  return absl::OkStatus();
}

absl::Status ReadType(TraceLine* line) {
  absl::Status status = NeedText(line->json, "type");
  if (!status.ok()) return status;
  const std::string type = line->json.at("type");
  const auto* known =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const LineType& entry) { return type == entry.name; });
  if (known == std::end(kTypes)) {
    return Bad("type: \"" + type.substr(0, 64) + "\" is not a type of record");
  }
  line->kind = known->kind;
  return absl::OkStatus();
}

absl::Status CheckCall(const json& line) {
  absl::Status status = NeedText(line, "func_call_id");
  return status.ok() ? NeedText(line, "function") : status;
}

// Only what TraceStates takes for granted. It looks at each attribute before it
// uses one.
absl::Status CheckState(const json& line) {
  for (const char* key : {"var_name", "var_type"}) {
    absl::Status status = NeedText(line, key);
    if (!status.ok()) return status;
  }
  const auto attributes = line.find("attributes");
  if (attributes == line.end()) return Bad("attributes: missing");
  if (!attributes->is_object()) return Bad("attributes: not an object");
  return absl::OkStatus();
}

// Python's json module writes these words for numbers that JSON does not have.
// The search also finds them within strings, hence "may be".
std::string WhyNoJson(const std::string& text) {
  for (const char* word : {"NaN", "Infinity"}) {
    if (text.find(word) != std::string::npos) {
      return std::string("not valid JSON, with a ") + word +
             " that may be the cause";
    }
  }
  return "not valid JSON";
}

}  // namespace

const nlohmann::json& TraceLine::Any(const char* key) const {
  const auto found = json.find(key);
  return found == json.end() ? Null() : *found;
}

const nlohmann::json& TraceLine::Object(const char* key) const {
  const auto& value = Any(key);
  return value.is_object() ? value : Null();
}

absl::StatusOr<TraceLine> ParseTraceLineUntrusted(const std::string& text) {
  absl::StatusOr<json> parsed = ParseJsonUntrusted(text);
  if (!parsed.ok()) {
    // The reader's message names the document, which is this line here; what is
    // left of it is one of two causes.
    const bool deep = parsed.status().message() != "document: not valid JSON";
    return Bad(deep ? "nested too deep" : WhyNoJson(text));
  }
  TraceLine line;
  line.json = *std::move(parsed);
  if (!line.json.is_object()) return Bad("not a JSON object");
  absl::Status status = ReadType(&line);
  if (!status.ok()) return status;
  const auto pid =
      Number(line.json, "process_id", std::numeric_limits<int32_t>::max());
  if (!pid.ok()) return pid.status();
  if (*pid == 0) return Bad("process_id: is 0");
  // Only a key by which threads are set apart, so any number will do.
  const auto thread =
      Number(line.json, "thread_id", std::numeric_limits<uint64_t>::max());
  if (!thread.ok()) return thread.status();
  // Times are added and subtracted later, also with a sign; half the range
  // leaves room for that.
  const auto time =
      Number(line.json, "time", std::numeric_limits<int64_t>::max() / 2);
  if (!time.ok()) return time.status();
  line.pid = static_cast<uint32_t>(*pid);
  line.thread = *thread;
  line.time_ns = *time;
  status = line.is_call() ? CheckCall(line.json) : CheckState(line.json);
  if (!status.ok()) return status;
  return line;
}

}  // namespace traincheck
