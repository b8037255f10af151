// Which values of which variables at which state point: the words in which
// rules on state are written ("parameter.grad" at "pre_step").
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_STATE_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_STATE_SPEC_H_

#include <optional>
#include <string>

#include "base/json_reader.h"
#include "invariants/rules/rank_comparison.h"
#include "invariants/rules/state_block.h"
#include "invariants/trace/definitions.h"
#include "proto/record_format.h"

namespace traincheck {

struct StateSpec {
  VariableKind kind = VariableKind::kParameter;
  bool grad = false;
  StatePoint point = StatePoint::kNone;

  bool operator<(const StateSpec& other) const { return Key() < other.Key(); }

  // "parameter.grad".
  std::string Of() const;
  // "gradients of parameters before an optimizer step".
  std::string Describe() const;

 private:
  int Key() const {
    return static_cast<int>(kind) * 1000 + grad * 100 + static_cast<int>(point);
  }
};

// "post_step" and the like; null for points on which no rule may stand.
const char* PointName(StatePoint point);
StatePoint PointFromName(const std::string& name);

// Reads "of" and "point".
StateSpec ReadStateSpec(JsonReader* reader);
// Adds them.
void WriteStateSpec(const StateSpec& spec, nlohmann::json* json);

// For a comparison of such values block by block (state_block.h).
RankComparison::Words WordsOf(const StateSpec& spec);

// The value that the spec means; nullopt: not recorded.
inline std::optional<uint64_t> ValueOf(const StateSpec& spec,
                                       const BlockEntry& entry) {
  return spec.grad ? entry.grad : entry.data;
}
inline Writer WriterOf(const StateSpec& spec, const BlockEntry& entry) {
  return spec.grad ? entry.grad_writer : entry.data_writer;
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_STATE_SPEC_H_
