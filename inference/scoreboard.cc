#include "inference/scoreboard.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/hash.h"

namespace traincheck {

namespace {

// More are more than enough: each is a trial, and 64 of them leave a chance of
// 2^-64.
constexpr size_t kMostContexts = 64;

std::string Content(const Example& example) {
  std::string content = example.holds ? "+" : "-";
  for (const FactValue& value : example.facts) {
    content += '\n';
    if (const auto* flag = std::get_if<bool>(&value)) {
      content += *flag ? "true" : "false";
    } else if (const auto* number = std::get_if<double>(&value)) {
      // All digits: numbers that differ are different examples.
      char digits[32];
      content.append(digits,
                     std::to_chars(digits, std::end(digits), *number).ptr);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      // The quote sets the text "true" apart from the flag. An unknown fact
      // adds nothing.
      content += '"' + *text;
    }
  }
  return content;
}

// Ranks of a program number their processes; what follows is the object.
uint64_t UnitOf(const Verdict& verdict) {
  return verdict.across_ranks ? verdict.unit : verdict.unit & UINT32_MAX;
}

}  // namespace

void ExampleTable::Add(const Key& key, const WeightedExample& example) {
  const auto [found, added] = examples_.emplace(key, example);
  if (!added) {
    found->second.windows += example.windows;
    // What is among the least hashes at the end was so at each moment before,
    // so it was never erased and its count is whole.
  } else if (examples_.size() > kMaxExamples) {
    examples_.erase(std::prev(examples_.end()));
  }
}

void ExampleTable::Add(const Example& example) {
  std::string content = Content(example);
  const uint64_t hash = StableHash(content);
  Add({hash, std::move(content)}, {example.holds, 1, example.facts});
}

void ExampleTable::Merge(const ExampleTable& other) {
  for (const auto& [key, example] : other.examples_) Add(key, example);
}

std::vector<WeightedExample> ExampleTable::Take() const {
  std::vector<WeightedExample> examples;
  for (const auto& [key, example] : examples_) examples.push_back(example);
  return examples;
}

void RunScore::Add(const Verdict& verdict) {
  // The window was counted when it was judged early.
  if (verdict.again) return;
  seen = true;
  if (verdict.outcome == Outcome::kUnknown) return;
  decided = true;
  units.insert(UnitOf(verdict));
  if (verdict.outcome == Outcome::kViolated) {
    ++violated;
    return;
  }
  const Witness witness{UnitOf(verdict), verdict.step};
  if (passed++ == 0 || witness < first) first = witness;
  // A window in which nothing relevant varied could not have refuted the rule,
  // so it is not a trial.
  if (!verdict.varied) return;
  if (verdict.context) {
    // Windows of one context are alike: together they are one trial.
    if (contexts.size() < kMostContexts) contexts.insert(*verdict.context);
    return;
  }
  // Ranks that run one program show the same: the one with the most trials
  // counts alone.
  const uint64_t process = verdict.across_ranks ? 0 : verdict.unit >> 32;
  varied = std::max(varied, varied_of_process[process] += verdict.trials);
}

void Score::Add(const std::string& run, const std::string& program,
                const RunScore& score) {
  // A run without the rule's subject says nothing, and does not count as
  // undecided.
  if (!score.seen) return;
  decided_[run] = score.decided;
  passed_ += score.passed;
  violated_ += score.violated;
  varied_ += score.varied;
  contexts_.insert(score.contexts.begin(), score.contexts.end());
  if (!score.decided) return;
  // The origin of the rule names the run and this window.
  if (score.passed > 0) witnesses_[run] = score.first;
  ProgramScore& all = programs_[program];
  all.passed += score.passed;
  all.violated += score.violated;
  all.units.insert(score.units.begin(), score.units.end());
  all.examples.Merge(score.examples);
}

bool Score::DecidedEverywhere() const {
  return std::all_of(decided_.begin(), decided_.end(),
                     [](const auto& run) { return run.second; });
}

uint64_t Score::units() const {
  uint64_t units = 0;
  // Units have numbers within their program, so they are added and not joined.
  for (const auto& [program, score] : programs_) units += score.units.size();
  return units;
}

std::vector<std::string> Score::Programs() const {
  std::vector<std::string> programs;
  for (const auto& [program, score] : programs_) programs.push_back(program);
  return programs;
}

std::vector<WeightedExample> Score::Examples(const std::string& without) const {
  ExampleTable all;
  for (const auto& [program, score] : programs_) {
    if (program != without) all.Merge(score.examples);
  }
  return all.Take();
}

std::vector<WeightedExample> Score::ExamplesOf(
    const std::string& program) const {
  const auto found = programs_.find(program);
  if (found == programs_.end()) return {};
  return found->second.examples.Take();
}

double ChanceOf(uint64_t trials) {
  return std::exp2(-static_cast<double>(trials));
}

}  // namespace traincheck
