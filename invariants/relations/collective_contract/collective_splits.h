// What the members of an all_to_all send each other: the part that one sends is
// the part that the other expects.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_SPLITS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_SPLITS_H_

#include <cstdint>
#include <optional>
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

// Calls tell eight parts at most (kMaxElements of the agent): those of further
// members are not known.
inline constexpr size_t kMostParts = 8;

struct Exchanges {
  // With each other member, where both are among the first kMostParts: then
  // each of the two can know its parts. So few in a group of any size.
  std::vector<Exchange> pairs;
  // In a larger group: the parts with every other member, which are equal if no
  // splits are given ("" otherwise). Its peer is -1.
  std::optional<Exchange> all;
};

// Of a call of all_to_all_single or all_to_all; nullopt: it is neither. `rank`
// is the member that calls.
std::optional<Exchanges> ExchangesOf(const Call& call,
                                     const ProcessDefinitions& definitions,
                                     const ProcessGroupInfo& group,
                                     int32_t rank);

// What such calls must tell.
void AddExchangeNeeds(CaptureNeeds* needs);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_SPLITS_H_
