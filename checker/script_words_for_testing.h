// The words of a script's line: testdata/SCRIPTS.md describes them.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_SCRIPT_WORDS_FOR_TESTING_H_
#define TRAINCHECK_CHECKER_SCRIPT_WORDS_FOR_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "proto/record_format.h"

namespace traincheck {

using Words = std::vector<std::string>;

// "0,1"; "-": none.
inline std::vector<int32_t> Ranks(const std::string& list) {
  std::vector<int32_t> ranks;
  if (list == "-") return ranks;
  std::istringstream in(list);
  for (std::string rank; std::getline(in, rank, ',');) {
    ranks.push_back(std::stoi(rank));
  }
  return ranks;
}

inline uint32_t Number(const std::string& word) {
  return static_cast<uint32_t>(std::stoul(word));
}

// The word after `key`, or "".
inline std::string After(const Words& words, const std::string& key) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == key) return words[i + 1];
  }
  return "";
}

inline bool Has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Are the words behind "says" in the text?
inline bool Says(const Words& words, const std::string& text) {
  auto word = std::find(words.begin(), words.end(), "says");
  if (word == words.end()) return true;
  std::string wanted;
  for (++word; word != words.end(); ++word) {
    wanted += (wanted.empty() ? "" : " ") + *word;
  }
  return text.find(wanted) != std::string::npos;
}

// "4,1"; "": none.
inline std::vector<uint64_t> Numbers(const std::string& list) {
  std::vector<uint64_t> numbers;
  std::istringstream in(list);
  for (std::string number; std::getline(in, number, ',');) {
    numbers.push_back(std::stoull(number));
  }
  return numbers;
}

// Of "sizes input=4,1 target=4", by argument.
inline std::map<std::string, std::vector<uint64_t>> SizesIn(
    const Words& words) {
  std::map<std::string, std::vector<uint64_t>> sizes;
  auto word = std::find(words.begin(), words.end(), "sizes");
  if (word == words.end()) return sizes;
  for (++word; word != words.end(); ++word) {
    const size_t equals = word->find('=');
    if (equals == std::string::npos) break;
    sizes[word->substr(0, equals)] = Numbers(word->substr(equals + 1));
  }
  return sizes;
}

inline StatePoint PointOf(const std::string& name) {
  static const auto* const kPoints = new std::map<std::string, StatePoint>{
      {"construction", StatePoint::kConstruction},
      {"forward_begin", StatePoint::kForwardBegin},
      {"backward_end", StatePoint::kBackwardEnd},
      {"pre_step", StatePoint::kPreStep},
      {"post_step", StatePoint::kPostStep},
      {"grad_clear", StatePoint::kGradClear},
      {"step_end", StatePoint::kStepEnd},
      {"worker_init", StatePoint::kWorkerInit},
      {"fetch", StatePoint::kFetch},
      {"save", StatePoint::kSave},
      {"load", StatePoint::kLoad},
      {"load_state_dict", StatePoint::kLoadStateDict}};
  return kPoints->at(name);
}

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_SCRIPT_WORDS_FOR_TESTING_H_
