#include "invariants/rules/process_brief.h"

namespace traincheck {

ProcessPlace ProcessPlace::Of(const ProcessFacts& facts) {
  return {facts.attempt(), facts.rank(), facts.world(), facts.is_worker()};
}

ProcessBrief ProcessBrief::Of(const ProcessFacts& facts) {
  return {.number = facts.number(),
          .place = ProcessPlace::Of(facts),
          .step = facts.clock().step(),
          .was_lost = facts.was_lost(),
          .gap_reason = facts.gaps() > 0 ? facts.gap_reason() : "",
          // Not copied: a run of a thousand ranks makes a brief of each when a
          // verdict is asked for.
          .sight = &facts.sight()};
}

std::string ProcessBrief::Name() const {
  return NameOfProcess(number, place.rank);
}

void ProcessPlace::Fields(Archive& archive) {
  archive(attempt, rank, world, is_worker);
}

void ProcessBrief::Fields(Archive& archive) {
  archive(place, step, was_lost, gap_reason);
}

}  // namespace traincheck
