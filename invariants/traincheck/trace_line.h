// One line of a TrainCheck trace: the begin, end or exception of a call, or the
// state of a variable.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_LINE_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_LINE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace traincheck {

enum class TraceLineKind { kCallBegin, kCallEnd, kCallRaised, kState };

struct TraceLine {
  TraceLineKind kind = TraceLineKind::kState;
  uint32_t pid = 0;
  uint64_t thread = 0;   // a pthread's identity
  uint64_t time_ns = 0;  // of the host's monotonic clock
  nlohmann::json json;   // the whole line

  bool is_call() const { return kind != TraceLineKind::kState; }
  // Calls only: which call, and of what.
  const std::string& call() const { return Text("func_call_id"); }
  const std::string& function() const { return Text("function"); }
  // Null where the line has no such object.
  const nlohmann::json& Object(const char* key) const;
  // Null (the JSON value) where the line has no such key.
  const nlohmann::json& Any(const char* key) const;

 private:
  const std::string& Text(const char* key) const {
    return json.at(key).get_ref<const std::string&>();
  }
};

// InvalidArgument says in a few words why nothing can be made of the line: it
// is no JSON (bare NaN is none), a key is missing or of a wrong type, the
// record is of an unknown type.
[[nodiscard]] absl::StatusOr<TraceLine> ParseTraceLineUntrusted(
    const std::string& text);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_LINE_H_
