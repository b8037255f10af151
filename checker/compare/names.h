// Numbers for texts, the same in both runs: a variable, or a function on a
// module, has another id in each process.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COMPARE_NAMES_H_
#define TRAINCHECK_CHECKER_COMPARE_NAMES_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace traincheck {

using NameId = uint32_t;

class Names {
 public:
  NameId Id(const std::string& text) {
    const auto [at, is_new] =
        ids_.try_emplace(text, static_cast<NameId>(texts_.size()));
    if (is_new) texts_.push_back(text);
    return at->second;
  }
  const std::string& Text(NameId id) const { return texts_[id]; }

 private:
  std::unordered_map<std::string, NameId> ids_;
  std::vector<std::string> texts_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_NAMES_H_
