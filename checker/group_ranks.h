// The ranks with which each process shares a replica group, as lists that
// processes of the same groups share: who looks at a thousand ranks looks at
// one list and not at a thousand.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_GROUP_RANKS_H_
#define TRAINCHECK_CHECKER_GROUP_RANKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "invariants/trace/definitions.h"

namespace traincheck {

// Ascending; never null.
using SharedRanks = std::shared_ptr<const std::vector<int32_t>>;

class GroupRanks {
 public:
  // The ranks of all groups of a process, its own among them. Made anew only
  // when a group of the process has changed.
  SharedRanks Of(uint32_t process, const ProcessDefinitions& definitions);
  // Of a process of which nothing is known.
  static const SharedRanks& None();

 private:
  struct Known {
    uint64_t revision = 0;  // of the definitions
    SharedRanks ranks;
  };

  SharedRanks Shared(std::vector<int32_t> ranks);

  std::map<uint32_t, Known> known_;  // by process
  // Those that some process has.
  std::map<std::vector<int32_t>, std::weak_ptr<const std::vector<int32_t>>>
      lists_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_GROUP_RANKS_H_
