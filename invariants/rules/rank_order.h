// Order of lists of ranks: that of their content, told at once where they are
// the same. Tables by lists of ranks are asked once a record, and a list may
// have a thousand ranks; most questions are about lists that are equal.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_RANK_ORDER_H_
#define TRAINCHECK_INVARIANTS_RULES_RANK_ORDER_H_

#include <cstdint>
#include <cstring>
#include <vector>

namespace traincheck {

inline bool SameRanks(const std::vector<int32_t>& a,
                      const std::vector<int32_t>& b) {
  if (&a == &b) return true;
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(int32_t)) == 0);
}

// For maps whose keys point to lists that outlive them.
struct PointedRanksLess {
  bool operator()(const std::vector<int32_t>* a,
                  const std::vector<int32_t>* b) const {
    return !SameRanks(*a, *b) && *a < *b;
  }
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RANK_ORDER_H_
