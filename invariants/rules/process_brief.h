// What is asked of a process beside its events: its place, how far it came and
// how well it was seen. It is kept of one that has ended (run_reader.h).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_PROCESS_BRIEF_H_
#define TRAINCHECK_INVARIANTS_RULES_PROCESS_BRIEF_H_

#include <cstdint>
#include <optional>
#include <string>

#include "invariants/facts/process_facts.h"
#include "invariants/facts/sight.h"
#include "invariants/trace/archive.h"

namespace traincheck {

struct ProcessPlace {
  uint32_t attempt = 0;
  std::optional<int32_t> rank;
  int32_t world = 0;
  bool is_worker = false;

  static ProcessPlace Of(const ProcessFacts& facts);
  bool trains() const { return rank.has_value() && !is_worker; }
  void Fields(Archive& archive);
};

struct ProcessBrief {
  uint32_t number = 0;
  ProcessPlace place;
  uint64_t step = 0;  // that was open
  bool was_lost = false;
  std::string gap_reason;        // "": no record is missing
  const Sight* sight = nullptr;  // as null: one that says nothing

  // It must not outlive `facts`, whose sight it points to.
  static ProcessBrief Of(const ProcessFacts& facts);
  // "rank 1", or "process 4" if its place is not known.
  std::string Name() const;
  // All but its number and its sight.
  void Fields(Archive& archive);
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_PROCESS_BRIEF_H_
