// Words for people that several relations use.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_WORDS_H_
#define TRAINCHECK_INVARIANTS_RULES_WORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "invariants/facts/process_facts.h"

namespace traincheck {

// "rank 1", "ranks 0, 1".
std::string RankWords(const std::vector<int32_t>& ranks);
// The first `most`, then "and 4 more".
std::string ListWords(const std::vector<std::string>& words, size_t most);
// "stage training".
std::string StageWords(const ProcessFacts& facts);
// "was killed in step 12", "was killed in step 12 or later".
std::string EndWords(const ProcessFacts& facts, ProcessEnd end);
// "rank 1 was killed in step 12".
std::string WhoseEndWords(const ProcessFacts& facts, ProcessEnd end);
// "p of calls of torch.drop was not recorded on rank 0".
std::string NotRecordedWords(const std::string& what,
                             const std::string& function,
                             const ProcessFacts& facts);
// Appends a text that is not empty and not there yet.
void AddOnce(const std::string& text, std::vector<std::string>* texts);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_WORDS_H_
