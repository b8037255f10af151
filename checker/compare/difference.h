// What two runs differ in.
//
// Threads: plain values.
#ifndef TRAINCHECK_CHECKER_COMPARE_DIFFERENCE_H_
#define TRAINCHECK_CHECKER_COMPARE_DIFFERENCE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checker/compare/step_rung.h"

namespace traincheck {

struct Difference {
  // nullopt: it is known before the first step (another number of ranks).
  std::optional<uint64_t> step;
  bool after_last_step = false;  // `step` is the last
  PlaceInStep place;
  std::string what;  // "the gradient of Net.fc.weight after the backward"
  // What each run had: "content 09af31c0d2e4b677", "not called".
  std::string a;
  std::string b;
  // Lines of the user's code: "train.py:31"; "" where not known.
  std::string site_a;
  std::string site_b;
  std::vector<int32_t> ranks;
};

// The differences of one step: counts all, keeps those that come first.
class DifferenceList {
 public:
  // `keep`: how many are kept.
  explicit DifferenceList(size_t keep) : keep_(keep) {}

  // describe() makes the Difference, but for its step and place. It is called
  // only for one that is kept for now.
  template <typename Describe>
  void Add(const PlaceInStep& place, const Describe& describe) {
    ++counts_[place.rung];
    if (keep_ == 0) return;
    const auto before = [](const PlaceInStep& one, const Difference& other) {
      return one < other.place;
    };
    const auto at =
        std::upper_bound(first_.begin(), first_.end(), place, before);
    if (at == first_.end() && first_.size() == keep_) return;
    Difference difference = describe();
    difference.place = place;
    first_.insert(at, std::move(difference));
    if (first_.size() > keep_) first_.pop_back();
  }

  bool empty() const { return counts_.empty(); }
  // By rung, of all that were added.
  const std::map<StepRung, uint64_t>& counts() const { return counts_; }
  // The first one first.
  const std::vector<Difference>& first() const { return first_; }

 private:
  const size_t keep_;
  std::map<StepRung, uint64_t> counts_;
  std::vector<Difference> first_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_DIFFERENCE_H_
