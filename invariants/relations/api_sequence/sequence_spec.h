// The parameters of APISequence (api_sequence.h).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_SEQUENCE_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_SEQUENCE_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/process_relation.h"

namespace traincheck {

inline constexpr size_t kMostStations = 32;

enum class SequenceWindow { kStep, kRun };

struct SequenceSpec {
  SequenceWindow window = SequenceWindow::kStep;
  std::vector<FunctionMatch> functions;  // two at least, in their order

  nlohmann::json ToJson() const;
  std::string Describe() const;
  void AddNeeds(CaptureNeeds* needs) const;
  static constexpr bool is_structure() { return true; }
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<SequenceSpec> Parse(const nlohmann::json& parameters,
                                            const std::string& path);
};

using SequenceRule = SpecRule<SequenceSpec>;

// As what a sequence names this call: of the loop that trains, what torch and
// the training are made of, at any depth; nullopt: nothing.
std::optional<FunctionMatch> StationOf(const Call& call);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_SEQUENCE_SPEC_H_
