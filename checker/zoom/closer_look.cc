#include "checker/zoom/closer_look.h"

#include <algorithm>
#include <set>
#include <utility>

#include "checker/compare/value_words.h"
#include "checker/zoom/value_comparison.h"

namespace traincheck {
namespace {

// How many kinds of call of one function are shown; the rest is counted.
constexpr size_t kShownCalls = 4;

struct CallsOnRanks {
  std::vector<int32_t> ranks;
  ZoomedCalls calls;
};

// By what was recorded of them.
using CallsByWords = std::map<std::string, CallsOnRanks>;

// Ranks of a data-parallel training make the same calls: they are one
// observation with a list of ranks.
void Join(int32_t rank, const ZoomedCalls& calls, CallsOnRanks* joined) {
  ZoomedCalls& all = joined->calls;
  if (joined->ranks.empty()) {
    all = calls;
  } else {
    all.count += calls.count;
    all.first_step = std::min(all.first_step, calls.first_step);
    all.last_step = std::max(all.last_step, calls.last_step);
  }
  joined->ranks.push_back(rank);
}

// One line a kind of call, since calls of a training repeat; the last shown
// line counts the rest.
void ObserveFunction(const std::string& function, const CallsByWords& by_words,
                     uint64_t more, std::vector<Observation>* observations) {
  std::vector<const CallsByWords::value_type*> ordered;
  for (const auto& entry : by_words) ordered.push_back(&entry);
  // The most frequent ones first; ties stay in the order of their words, the
  // same each time.
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto* a, const auto* b) {
                     return a->second.calls.count > b->second.calls.count;
                   });
  for (size_t i = 0; i < ordered.size(); ++i) {
    if (i == kShownCalls) {
      std::string& seen = observations->back().seen;
      seen +=
          "; " + std::to_string(ordered.size() - i) + " further kinds of call";
      // How many kinds these are is not counted.
      if (more > 0) seen += ", and " + std::to_string(more) + " other calls";
      return;
    }
    const auto& [words, joined] = *ordered[i];
    const ZoomedCalls& calls = joined.calls;
    observations->push_back(
        {.what = calls.site.empty() ? function : function + " at " + calls.site,
         .ranks = joined.ranks,
         .first_step = calls.first_step,
         .last_step = calls.last_step,
         .seen = std::to_string(calls.count) +
                 (calls.count == 1 ? " call: " : " calls: ") + words});
  }
}

void ObserveCalls(const std::map<int32_t, ZoomedProcess>& ranks,
                  std::vector<Observation>* observations) {
  std::map<std::string, CallsByWords> functions;
  std::map<std::string, uint64_t> more;
  for (const auto& [rank, process] : ranks) {
    for (const auto& [function, calls] : process.calls) {
      for (const auto& [words, same] : calls) {
        Join(rank, same, &functions[function][words]);
      }
    }
    for (const auto& [function, count] : process.more_calls) {
      more[function] += count;
    }
  }
  for (const auto& [function, by_words] : functions) {
    ObserveFunction(function, by_words, more[function], observations);
  }
}

// "the gradient of Net.fc.weight before the optimizer's step"
std::string PlaceWords(const ZoomedPlace& place) {
  return (place.is_grad ? "the gradient of " : "") + place.variable +
         PointWords(place.point);
}

void Add(const std::string& words, std::string* seen) {
  if (words.empty()) return;
  *seen += (seen->empty() ? "" : "; ") + words;
}

// Everything about one variable at one point: whether it is there, how large it
// is, which ranks differ, and what the step did to it.
Observation ObservationOf(const ZoomedPlace& place,
                          const std::map<ZoomedPlace, ValuesByRank>& all) {
  const ValuesByRank& values = all.at(place);
  Observation observation;
  observation.what = PlaceWords(place);
  std::set<uint64_t> steps;
  for (const auto& [rank, by_step] : values) {
    observation.ranks.push_back(rank);
    for (const auto& [step, value] : *by_step) steps.insert(step);
  }
  // There is one at least: LookCloser leaves out places without values.
  observation.first_step = *steps.begin();
  observation.last_step = *steps.rbegin();
  Add(AbsenceWords(values), &observation.seen);
  Add(SizeWords(values), &observation.seen);
  Add(RankWords(values), &observation.seen);
  // What the optimizer's step did shows where the value was recorded on both
  // sides of it. Gradients are not its work.
  if (place.point == StatePoint::kPostStep && !place.is_grad) {
    const auto before =
        all.find({place.variable, place.is_grad, StatePoint::kPreStep});
    if (before != all.end()) {
      Add(ChangeWords(before->second, values), &observation.seen);
    }
  }
  if (observation.seen.empty()) observation.seen = "it could not be read";
  return observation;
}

}  // namespace

std::vector<Observation> LookCloser(
    const std::map<int32_t, ZoomedProcess>& ranks) {
  std::vector<Observation> observations;
  ObserveCalls(ranks, &observations);
  std::map<ZoomedPlace, ValuesByRank> places;
  for (const auto& [rank, process] : ranks) {
    for (const auto& [place, by_step] : process.values) {
      if (!by_step.empty()) places[place][rank] = &by_step;
    }
  }
  for (const auto& [place, values] : places) {
    observations.push_back(ObservationOf(place, places));
  }
  return observations;
}

}  // namespace traincheck
