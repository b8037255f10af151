#include "invariants/relations/call_returns/standstill_words.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// In one sentence. A thousand ranks are in few places, and the rarest of them
// are named first.
constexpr size_t kMostPlaces = 4;

std::string LastPart(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// "all_reduce at train.py:12"
std::string CallWords(const LateCall& call) {
  // A module is called by its own name.
  std::string name = LastPart(call.function) == "__call__"
                         ? "a forward pass"
                         : LastPart(call.function);
  if (call.site.empty()) return name;
  return absl::StrCat(name, " at ", call.site.substr(call.site.rfind('/') + 1));
}

// Ranks that are in the same place.
struct RanksInPlace {
  std::vector<int32_t> ranks;
  const LateCall* call = nullptr;  // null: in none that is late
  std::string words;

  // Few ranks first: they are where the others are not. Then by number, so that
  // the text is the same in each check.
  bool operator<(const RanksInPlace& other) const {
    return std::pair(ranks.size(), ranks) <
           std::pair(other.ranks.size(), other.ranks);
  }
};

// Groups the ranks by what is to be said of them, so that the text does not
// grow with the number of ranks.
std::vector<RanksInPlace> PlacesOf(const Standstill& standstill) {
  // By their words: ranks of which the same is to be said are one place.
  std::map<std::string, RanksInPlace> places;
  const auto add = [&](int32_t rank, const std::string& words,
                       const LateCall* call) {
    RanksInPlace& place = places[words];
    place.ranks.push_back(rank);
    place.words = words;
    if (!place.call) place.call = call;
  };
  for (const auto& [rank, call] : standstill.late) {
    std::string words = "in " + CallWords(call);
    if (!call.brings.empty()) words += " with " + call.brings;
    add(rank, words, &call);
  }
  for (const auto& [rank, words] : standstill.others) add(rank, words, nullptr);
  std::vector<RanksInPlace> sorted;
  for (auto& [words, place] : places) sorted.push_back(std::move(place));
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

std::string WordsOf(const RanksInPlace& place) {
  const char* be = !place.call ? "" : place.ranks.size() == 1 ? " is" : " are";
  return absl::StrCat(RankWords(place.ranks), be, " ", place.words);
}

void AddCall(const LateCall& call, Finding* finding) {
  AddOnce(call.function, &finding->apis);
  AddOnce(call.site, &finding->sites);
  AddOnce(
      absl::StrCat(CallWords(call), ": nothing was recorded for ", call.limit),
      &finding->evidence);
}

// "rank 0 is in step 12, ranks 1, 2 are in step 13"; "": all are in one. Ranks
// in one function look alike otherwise, although one of them has made fewer
// steps.
std::string StepWords(const Standstill& standstill) {
  std::map<int64_t, std::vector<int32_t>> steps;
  for (const auto& [rank, call] : standstill.late) {
    if (call.step) steps[*call.step].push_back(rank);
  }
  if (steps.size() < 2) return "";
  std::vector<std::string> words;
  for (const auto& [step, ranks] : steps) {
    words.push_back(absl::StrCat(RankWords(ranks),
                                 ranks.size() == 1 ? " is" : " are",
                                 " in step ", step));
  }
  return ListWords(words, kMostPlaces);
}

}  // namespace

std::string DurationWords(uint64_t us) {
  if (us < 1000) return absl::StrCat(us, " us");
  const double ms = static_cast<double>(us) / 1000;
  if (us < 1000000) return absl::StrFormat("%.3g ms", ms);
  return absl::StrFormat("%.3g s", ms / 1000);
}

Finding FindingOf(const Standstill& standstill) {
  Finding finding;
  finding.expected =
      "every rank that is to make the call begins it, and it "
      "returns";
  std::vector<std::string> seen;
  for (const RanksInPlace& place : PlacesOf(standstill)) {
    seen.push_back(WordsOf(place));
    if (place.call) AddCall(*place.call, &finding);
  }
  finding.seen = ListWords(seen, kMostPlaces);
  AddOnce(StepWords(standstill), &finding.evidence);
  return finding;
}

Finding FindingOf(const LateCall& call) {
  Finding finding;
  finding.expected = "the call returns";
  finding.seen =
      absl::StrCat(CallWords(call), " has not returned for ", call.limit);
  AddOnce(call.function, &finding.apis);
  AddOnce(call.site, &finding.sites);
  return finding;
}

std::optional<int64_t> StepOf(const Standstill& standstill) {
  std::optional<int64_t> first;
  for (const auto& [rank, call] : standstill.late) {
    if (call.step && (!first || *call.step < *first)) first = call.step;
  }
  return first;
}

}  // namespace traincheck
