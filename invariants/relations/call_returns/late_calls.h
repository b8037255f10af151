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
#include <memory>
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
  uint64_t kind = 0;    // 0: nobody else is to make it
  uint64_t number = 0;  // among those of its kind, on each rank
  // Who is to make it, sorted: one list for all calls of a kind, which may be
  // of a thousand ranks. Null: nobody, or whoever keeps the call has the list.
  std::shared_ptr<const std::vector<int32_t>> ranks = nullptr;
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
  // Records of the rank are missing: how many calls of a kind it has begun is
  // not known until it begins the next one, nor whether it is still late.
  void LoseCount(uint32_t attempt, int32_t rank);
  // "ended in order in step 7"
  void EndRank(uint32_t attempt, int32_t rank, const std::string& how);

  void Fields(Archive& archive);

  // How many ranks were asked for how much they have begun: for the test that
  // this grows with the ranks, and not with their square.
  uint64_t looks() const { return looks_; }

 private:
  using CallKey = std::pair<uint64_t, uint64_t>;  // kind, number

  // Small: it stays when the rank has ended.
  struct Rank {
    // How many, by kind; sorted. There are a few.
    std::vector<std::pair<uint64_t, uint64_t>> begun;
    // Records were missing: what is not among them is not known, otherwise 0.
    bool lost = false;
    std::optional<uint32_t> ended;  // in endings_

    void Fields(Archive& archive);
  };
  // Of a kind of which some call was late.
  struct Kind {
    std::shared_ptr<const std::vector<int32_t>> ranks;  // as in SharedCall
    // How many members have begun how many calls, as far as it is known: who
    // misses a call is found without asking each of them. Not saved.
    std::map<uint64_t, size_t> counts;

    bool Has(int32_t rank) const;
    void Add(std::optional<uint64_t> begun);
    void Remove(std::optional<uint64_t> begun);
    // How many have begun call `number`.
    size_t Begun(uint64_t number) const;
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
    // Calls that were told, until every member has begun the next one.
    std::set<CallKey> told;
    bool told_deadlock = false;
    // They hold the ranks of all late calls, which themselves have none.
    std::map<uint64_t, Kind> kinds;
    size_t ended = 0;  // ranks; not saved

    void Fields(Archive& archive);
  };

  Kind& KindOf(Attempt* attempt, const SharedCall& call);
  void CountMembers(const Attempt& attempt, uint64_t number, Kind* kind);
  // `rank` has begun so many calls of the kind.
  void SetBegun(Attempt* attempt, int32_t rank, uint64_t kind, uint64_t count);
  void TellLate(uint32_t number, Attempt* attempt, const SharedCall& call);
  void TellIfNobodyReturns(uint32_t number, Attempt* attempt,
                           const SharedCall& call);
  void TellIfDeadlock(uint32_t number, Attempt* attempt);
  // How the rank has ended; "": it has not.
  std::string EndOf(const Rank& rank) const {
    return rank.ended ? endings_.Text(*rank.ended) : "";
  }
  static bool IsDeadlock(const Attempt& attempt);
  // Is it known of some member that it has not begun the call?
  static bool Misses(const Attempt& attempt, const SharedCall& call);
  // nullopt: not known.
  static std::optional<uint64_t> Begun(const Attempt& attempt, int32_t rank,
                                       uint64_t kind);
  // Forgets a call that one of these members came back from in time, or that
  // all members came back from.
  void Forget(Attempt* attempt, uint64_t kind, uint64_t number,
              const std::vector<int32_t>& ranks);

  const bool deadlock_;
  const Listener listener_;
  TextTable endings_;
  std::map<uint32_t, Attempt> attempts_;
  uint64_t looks_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_LATE_CALLS_H_
