// The word that a user meant.
#ifndef TRAINCHECK_BASE_NEAREST_H_
#define TRAINCHECK_BASE_NEAREST_H_

#include <string>
#include <vector>

namespace traincheck {

// The one of `words` that takes the fewest changes of a letter (two exchanged
// neighbours are one), the first of several; "" where that is more than a third
// of its letters.
std::string NearestWord(const std::string& typed,
                        const std::vector<std::string>& words);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_NEAREST_H_
