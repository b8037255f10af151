// The word that a user meant.
#ifndef TRAINCHECK_CTL_TEXT_NEAREST_H_
#define TRAINCHECK_CTL_TEXT_NEAREST_H_

#include <string>
#include <vector>

namespace traincheck::ctl {

// The one of `words` that takes the fewest changes of a letter (two exchanged
// neighbours are one), the first of several; "" where that is more than a third
// of its letters.
std::string NearestWord(const std::string& typed,
                        const std::vector<std::string>& words);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_NEAREST_H_
