// Which calls of the ranks of a run are late, and who has begun the same ones:
// what is needed to say that ranks wait for each other. A function of what each
// rank did in its own order, whatever the order in which ranks come, except
// where ranks that were late go on again.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_LATE_CALLS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_LATE_CALLS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "invariants/rules/text_table.h"
#include "invariants/trace/archive.h"

namespace traincheck {

// Calls that several ranks are to make: a group's collectives, the backwards of
// a training.
struct SharedCall {
  uint64_t kind = 0;                // 0: nobody else is to make it
  uint64_t number = 0;              // among those of its kind, on each rank
  std::vector<int32_t> ranks = {};  // who is to make it, sorted
  bool collective = false;

  void Fields(Archive& archive);
};

// A call that has not come back in time, as people are shown it.
struct LateCall {
  SharedCall shared;
  std::string function;
  std::string site;
  std::optional<int64_t> step;
  std::string brings;  // "torch.float32 [3]" of a collective; "": not known
  std::string limit;   // "10 s (its calls from there take 3 ms)"

  void Fields(Archive& archive);
};

// Who is where.
struct Standstill {
  uint32_t attempt = 0;
  uint64_t unit = 0;
  std::vector<int32_t> ranks;             // all that are concerned
  std::map<int32_t, LateCall> late;       // by rank
  std::map<int32_t, std::string> others;  // what else is known of a rank
  bool again = false;                     // it was told when less was known
};

class LateCalls {
 public:
  using Listener = std::function<void(const Standstill&)>;

  // `deadlock`: only what cannot resolve by itself is told.
  LateCalls(bool deadlock, Listener listener)
      : deadlock_(deadlock), listener_(std::move(listener)) {}

  // The rank of an attempt of so many ranks begins a shared call.
  void Begin(uint32_t attempt, int32_t rank, int32_t world,
             const SharedCall& call);
  // Its innermost call is late. REQUIRES: it is told once.
  void OnLate(uint32_t attempt, int32_t rank, int32_t world,
              const LateCall& call);
  // A call that was late has returned all the same. Not told of one that ends
  // by an exception: whoever gave up waiting still says where it stood.
  void Return(uint32_t attempt, int32_t rank);
  // "ended in order in step 7"
  void EndRank(uint32_t attempt, int32_t rank, const std::string& how);

  void Fields(Archive& archive);

 private:
  using CallKey = std::pair<uint64_t, uint64_t>;  // kind, number

  // Small: it stays when the rank has ended.
  struct Rank {
    // How many, by kind; sorted. There are a few.
    std::vector<std::pair<uint64_t, uint64_t>> begun;
    std::optional<uint32_t> ended;  // in endings_

    void Fields(Archive& archive);
  };
  struct Attempt {
    int32_t world = 0;
    absl::btree_map<int32_t, Rank> ranks;
    // The late calls of ranks, until they return or the rank begins another
    // shared one.
    std::map<int32_t, LateCall> late_now;
    // Those that were late in it.
    std::map<CallKey, std::map<int32_t, LateCall>> late;
    std::map<uint64_t, uint64_t> told;  // by kind: the first number
    bool told_deadlock = false;

    void Fields(Archive& archive);
  };

  void TellLate(uint32_t number, Attempt* attempt, const SharedCall& call);
  void TellIfNobodyReturns(uint32_t number, Attempt* attempt,
                           const SharedCall& call);
  void TellIfDeadlock(uint32_t number, Attempt* attempt);
  // How the rank has ended; "": it has not.
  std::string EndOf(const Rank& rank) const {
    return rank.ended ? endings_.Text(*rank.ended) : "";
  }
  static bool IsDeadlock(const Attempt& attempt);
  // Has some member not begun the call?
  static bool Misses(const Attempt& attempt, const SharedCall& call);
  static uint64_t Begun(const Attempt& attempt, int32_t rank, uint64_t kind);
  // Forgets a call that some member came back from in time, or all did.
  static void Forget(Attempt* attempt, const SharedCall& call);

  const bool deadlock_;
  const Listener listener_;
  TextTable endings_;
  std::map<uint32_t, Attempt> attempts_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_LATE_CALLS_H_
