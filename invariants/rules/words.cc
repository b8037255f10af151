#include "invariants/rules/words.h"

#include <algorithm>

namespace traincheck {

std::string RankWords(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

std::string ListWords(const std::vector<std::string>& words, size_t most) {
  std::string text;
  for (size_t i = 0; i < words.size() && i < most; ++i) {
    text += (i == 0 ? "" : ", ") + words[i];
  }
  if (words.size() > most) {
    text += " and " + std::to_string(words.size() - most) + " more";
  }
  return text;
}

std::string StageWords(const ProcessFacts& facts) {
  const char* stage = facts.stage();
  return stage ? "stage " + std::string(stage) : "an unknown stage";
}

std::string EndWords(const ProcessFacts& facts, ProcessEnd end) {
  // Behind missing records the clock has the least that the step can be.
  const std::string step = std::to_string(facts.clock().step()) +
                           (facts.clock().synced() ? "" : " or later");
  switch (end) {
    case ProcessEnd::kClean:
      return "ended in order in step " + step;
    case ProcessEnd::kDied:
      return "was killed or left by os._exit in step " + step;
    case ProcessEnd::kLost:
      return "was lost in step " + step;
    case ProcessEnd::kRaised:
      return "ended by an uncaught exception in step " + step;
    case ProcessEnd::kInterrupted:
      return "ended by SIGINT (Ctrl-C) in step " + step;
  }
  return "";
}

std::string WhoseEndWords(const ProcessFacts& facts, ProcessEnd end) {
  return facts.Name() + " " + EndWords(facts, end);
}

std::string NotRecordedWords(const std::string& what,
                             const std::string& function,
                             const ProcessFacts& facts) {
  return what + " of calls of " + function + " was not recorded on " +
         facts.Name();
}

// A search, because lists that people read are short and keep their order.
void AddOnce(const std::string& text, std::vector<std::string>* texts) {
  if (text.empty()) return;
  if (std::find(texts->begin(), texts->end(), text) != texts->end()) return;
  texts->push_back(text);
}

}  // namespace traincheck
