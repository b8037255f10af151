// Texts by number, so that what is kept of each window is small. It never
// forgets: what differs from window to window does not belong here.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_TEXT_TABLE_H_
#define TRAINCHECK_INVARIANTS_RULES_TEXT_TABLE_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariants/trace/archive.h"

namespace traincheck {

class TextTable {
 public:
  uint32_t Number(const std::string& text) {
    const auto [found, added] =
        numbers_.emplace(text, static_cast<uint32_t>(texts_.size()));
    if (added) texts_.push_back(text);
    return found->second;
  }
  // "" if there is none of this number.
  std::string Text(uint32_t number) const {
    return number < texts_.size() ? texts_[number] : "";
  }
  void Fields(Archive& archive) {
    archive(texts_);
    numbers_.clear();
    for (uint32_t i = 0; i < texts_.size(); ++i) numbers_[texts_[i]] = i;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_TEXT_TABLE_H_
