#include "checker/compare/run_comparison.h"

#include <algorithm>
#include <utility>

namespace traincheck {
namespace {

// The earlier step first, then what lies within it before what follows the last
// step, then the place in the step.
bool Before(const Difference& a, const Difference& b) {
  if (a.step != b.step) return a.step < b.step;
  if (a.after_last_step != b.after_last_step) return b.after_last_step;
  return a.place < b.place;
}

bool InOneStep(const Difference& a, const Difference& b) {
  return a.step == b.step && a.after_last_step == b.after_last_step;
}

void AddBefore(const char* what, const std::string& a, const std::string& b,
               std::vector<Difference>* differences) {
  // What one run does not say is unknown, and not a difference.
  if (a.empty() || b.empty() || a == b) return;
  Difference difference;
  difference.what = what;
  difference.a = a;
  difference.b = b;
  differences->push_back(std::move(difference));
}

// Empty where it is not known, so that AddBefore makes no difference of it.
std::string WorldWords(int32_t world) {
  if (world == 0) return "";
  return world == 1 ? "1 rank" : std::to_string(world) + " ranks";
}

}  // namespace

RunComparison::RunComparison(int32_t world_a, int32_t world_b) {
  AddBefore("the number of ranks", WorldWords(world_a), WorldWords(world_b),
            &result_.before);
}

// Once: what starts the ranks of a run starts them alike.
void RunComparison::CompareVersions(const ProcessVersions& a,
                                    const ProcessVersions& b) {
  AddBefore("the version of torch", a.torch, b.torch, &result_.before);
  AddBefore("the version of Python", a.python, b.python, &result_.before);
  // Not a difference of the runs: another agent may see more or less of the
  // same training.
  if (a.agent == b.agent) return;
  result_.coverage.Miss(
      "what one agent records and the other does not",
      "agent " + a.agent + " in run A, " + b.agent + " in run B", 1, "");
}

// The caller adds ranks in ascending order, so the versions are those of the
// lowest rank that both runs have.
void RunComparison::AddRank(int32_t rank, ProcessResult result) {
  ComparedRank compared = {.rank = rank,
                           .steps_a = result.steps_a,
                           .steps_b = result.steps_b,
                           .first_step = std::nullopt};
  if (!result.first.empty()) compared.first_step = result.first[0].step;
  if (result_.ranks.empty()) {
    CompareVersions(result.versions_a, result.versions_b);
  }
  result_.ranks.push_back(compared);
  parts_.push_back({rank, std::move(result)});
}

void RunComparison::AddWorker(int32_t rank, uint64_t worker,
                              ProcessResult result) {
  for (Difference& difference : result.first) {
    difference.what += " in worker " + std::to_string(worker) + " of a loader";
  }
  // A worker makes no steps: all of its records are one span.
  result.coverage.whole_steps = result.coverage.skeleton_steps = 0;
  parts_.push_back({rank, std::move(result)});
}

void RunComparison::AddLone(RunSide only_in, const std::string& kind,
                            const std::string& process) {
  result_.coverage.Miss(kind, only_in == RunSide::kA ? kInAOnly : kInBOnly, 1,
                        process);
}

// A difference that several ranks show is one.
void RunComparison::Merge(const Part& part) {
  for (Difference difference : part.result.first) {
    const auto same =
        std::find_if(result_.first.begin(), result_.first.end(),
                     [&](const Difference& other) {
                       return InOneStep(other, difference) &&
                              other.place.rung == difference.place.rung &&
                              other.what == difference.what;
                     });
    if (same == result_.first.end()) {
      difference.ranks = {part.rank};
      result_.first.push_back(std::move(difference));
    } else if (std::find(same->ranks.begin(), same->ranks.end(), part.rank) ==
               same->ranks.end()) {
      same->ranks.push_back(part.rank);
      std::sort(same->ranks.begin(), same->ranks.end());
    }
  }
}

// The rank that differs first leads: its step is the one whose differences are
// shown, and what followed is counted on it alone.
ComparisonResult RunComparison::Finish() {
  const Part* leading = nullptr;
  for (const Part& part : parts_) {
    result_.coverage.Add(part.result.coverage);
    if (part.result.first.empty()) continue;
    if (leading == nullptr ||
        Before(part.result.first[0], leading->result.first[0])) {
      leading = &part;
    }
  }
  if (leading == nullptr) return std::move(result_);
  // First, so that a difference that several ranks show has the words and lines
  // of the rank that leads.
  Merge(*leading);
  for (const Part& part : parts_) {
    if (part.result.first.empty() ||
        // Ranks that differ in a later step may do so because of this one.
        !InOneStep(part.result.first[0], leading->result.first[0])) {
      continue;
    }
    if (&part != leading) Merge(part);
    for (const auto& [rung, count] : part.result.counts) {
      result_.counts[rung] += count;
    }
  }
  std::stable_sort(result_.first.begin(), result_.first.end(), Before);
  if (result_.first.size() > ProcessComparison::kMaxKept) {
    result_.first.resize(ProcessComparison::kMaxKept);
  }
  result_.variables_first = leading->result.variables_first;
  result_.variables_last = leading->result.variables_last;
  result_.steps_behind = leading->result.steps_behind;
  result_.steps_behind_different = leading->result.steps_behind_different;
  return std::move(result_);
}

}  // namespace traincheck
