// What the members of an all_to_all send each other: the part that one sends is
// the part that the other expects.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_SPLITS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_SPLITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "invariants/rules/capture_needs.h"
#include "invariants/trace/events.h"

namespace traincheck {

// Between this member and another.
struct Exchange {
  int32_t peer = 0;      // rank
  std::string sent;      // "3 rows", "torch.float32 [3, 2]"; "": not known
  std::string expected;  // of the peer; likewise
};

// Of a call of all_to_all_single or all_to_all, with each other member; empty:
// it is neither. `rank` is the member that calls. Splits that are not given
// are equal parts. Calls tell eight parts at most: those of further members are
// not known.
std::vector<Exchange> ExchangesOf(const Call& call,
                                  const ProcessDefinitions& definitions,
                                  const ProcessGroupInfo& group, int32_t rank);

// What such calls must tell.
void AddExchangeNeeds(CaptureNeeds* needs);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_SPLITS_H_
