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

#include "invariants/trace/archive.h"
#include "invariants/trace/definitions.h"

namespace traincheck {

// Ascending; never null.
using SharedRanks = std::shared_ptr<const std::vector<int32_t>>;

class GroupRanks {
 public:
  // The ranks of all groups of a process, its own among them. Made anew only
  // when a group of the process has changed.
  SharedRanks Of(uint32_t process, const ProcessDefinitions& definitions);
  // Keeps the ranks of a process whose definitions go.
  void LetGo(uint32_t process, const ProcessDefinitions& definitions);
  // Of a process that was let go; of another one there are none.
  SharedRanks LastOf(uint32_t process) const;

  // Saves or restores the ranks of processes that were let go: those of others
  // are asked for anew.
  void Fields(Archive& archive);

 private:
  struct Known {
    uint64_t revision = 0;  // of the definitions
    SharedRanks ranks;
  };

  static const SharedRanks& None();
  SharedRanks Shared(std::vector<int32_t> ranks);

  // By process.
  std::map<uint32_t, Known> known_;
  std::map<uint32_t, SharedRanks> last_;  // of those that were let go
  // Those that some process has.
  std::map<std::vector<int32_t>, std::weak_ptr<const std::vector<int32_t>>>
      lists_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_GROUP_RANKS_H_
