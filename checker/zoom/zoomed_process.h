// What one process recorded while a plan zoomed in on variables and functions
// (docs/capture-plan.md).
//
// Threads: plain values.
#ifndef TRAINCHECK_CHECKER_ZOOM_ZOOMED_PROCESS_H_
#define TRAINCHECK_CHECKER_ZOOM_ZOOMED_PROCESS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "proto/record_format.h"

namespace traincheck {

// What an incident is about, by the names that its violations have.
struct ZoomSubject {
  std::set<std::string> functions;  // "torch.nn.functional.dropout"
  std::set<std::string> variables;  // "Net.fc.weight"

  bool empty() const { return functions.empty() && variables.empty(); }
};

// A value of a variable at one point of each step.
struct ZoomedPlace {
  std::string variable;
  bool is_grad = false;
  StatePoint point = StatePoint::kNone;

  auto operator<=>(const ZoomedPlace&) const = default;
};

struct ZoomedStatistics {
  double norm = 0;  // over the elements that are finite
  double absmax = 0;
  uint64_t nan_count = 0;
  uint64_t inf_count = 0;
};

struct ZoomedValue {
  enum class Kind { kNone, kZero, kOther, kUnreadable };

  Kind kind = Kind::kUnreadable;
  uint64_t digest = 0;
  std::optional<ZoomedStatistics> statistics;
  std::vector<uint64_t> rows;  // their digests; empty: not recorded
};

// Calls of one function that were given and gave back the same, as far as it is
// recorded.
struct ZoomedCalls {
  uint64_t count = 0;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  std::string site;  // of the first: "train.py:31"; "": not known
};

struct ZoomedProcess {
  static constexpr size_t kMaxDifferentCalls = 64;  // of one function

  bool began = false;  // the plan was applied
  bool over = false;   // it has given way to what came before it, or after it
  // Recorded in full.
  std::set<uint64_t> steps;
  // Why records of that time are missing; "": none is, as far as is known.
  std::string missing;
  std::map<ZoomedPlace, std::map<uint64_t, ZoomedValue>> values;  // by step
  // By function and by what was recorded: "input=float32 [2, 8] on cpu -> ...".
  std::map<std::string, std::map<std::string, ZoomedCalls>> calls;
  // Calls beyond those of kMaxDifferentCalls kinds, by function.
  std::map<std::string, uint64_t> more_calls;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_ZOOM_ZOOMED_PROCESS_H_
