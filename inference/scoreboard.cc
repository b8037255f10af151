#include "inference/scoreboard.h"

#include <algorithm>

#include "invariants/hash.h"

namespace traincheck {

namespace {

// Fewer windows could agree by chance.
constexpr uint64_t kLeastWindows = 2;

std::string Content(const Example& example) {
  std::string content = example.holds ? "+" : "-";
  for (const FactValue& value : example.facts) {
    content += '\n';
    if (const auto* flag = std::get_if<bool>(&value)) {
      content += *flag ? "true" : "false";
    } else if (const auto* number = std::get_if<double>(&value)) {
      content += std::to_string(*number);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      content += '"' + *text;
    }
  }
  return content;
}

}  // namespace

void Score::Add(const std::string& run, const std::string& experiment,
                const Verdict& verdict) {
  if (verdict.again) return;
  bool& decided = runs_[run];
  if (verdict.outcome == Outcome::kUnknown) return;
  decided = true;
  experiments_.insert(experiment);
  if (verdict.outcome == Outcome::kViolated) {
    ++violated_;
    return;
  }
  ++passed_;
  varied_ += verdict.varied;
}

void Score::AddExample(const std::string& experiment, const Example& example) {
  if (!example.holds) refuting_.insert(experiment);
  std::string content = Content(example);
  const uint64_t hash = StableHash(content);
  WeightedExample& weighted = examples_[{hash, std::move(content)}];
  if (weighted.windows++ == 0) {
    weighted.holds = example.holds;
    weighted.facts = example.facts;
    if (examples_.size() > kMaxExamples) {
      examples_.erase(std::prev(examples_.end()));
    }
  }
}

bool Score::DecidedEverywhere() const {
  return std::all_of(runs_.begin(), runs_.end(),
                     [](const auto& run) { return run.second; });
}

bool Score::Refutable() const {
  return passed_ >= kLeastWindows && varied_ > 0;
}

std::vector<WeightedExample> Score::Examples() const {
  std::vector<WeightedExample> examples;
  for (const auto& [key, example] : examples_) examples.push_back(example);
  return examples;
}

}  // namespace traincheck
