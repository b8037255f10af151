#include "base/nearest.h"

#include <algorithm>

namespace traincheck {
namespace {

// No command or option is longer than this; what is typed beyond it does not
// count, which bounds the time.
constexpr size_t kMaxLetters = 64;

// Dynamic programming: d[i][j] is the least number of changes that make the
// first j letters of `b` of the first i letters of `a`. The time is the product
// of both lengths.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1,
                                     std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({replaced, d[i - 1][j] + 1, d[i][j - 1] + 1});
      const bool exchanged =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string NearestWord(const std::string& typed,
                        const std::vector<std::string>& words) {
  std::string nearest;
  // A word is a suggestion only if at most a third of its letters changes: more
  // would be a guess.
  size_t fewest = kMaxLetters;
  for (const std::string& word : words) {
    const size_t changes = Distance(typed.substr(0, kMaxLetters), word);
    if (changes >= fewest || 3 * changes > word.size()) continue;
    fewest = changes;
    nearest = word;
  }
  return nearest;
}

}  // namespace traincheck
