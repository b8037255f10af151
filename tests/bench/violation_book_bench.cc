// How long it takes to keep the violations of a run, and their incidents, while
// verdicts come in: as a live check does, which takes what has changed again
// and again.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "checker/violation_book.h"
#include "invariants/sets/invariant_for_testing.h"

namespace traincheck {
namespace {

constexpr int kRules = 1000;
constexpr int kVariables = 400;
constexpr int kRanks = 8;
constexpr int kBetweenTakes = 100;

// On every rung that facts of calls have; a third compare ranks.
std::vector<Invariant> Rules() {
  constexpr const char* kFacts[] = {
      "call.inside_wrapper", "call.rng_advanced",     "grad.scaled",
      "opt.rates_ended",     "opt.losses_are_zero",   "schedule.outruns",
      "sampler.shuffles",    "opt.trains_as_before",  "call.shapes_match",
      "opt.has_stepped",     "opt.gradients_are_old", "opt.units_alike",
  };
  std::vector<Invariant> rules;
  for (int i = 0; i < kRules; ++i) {
    rules.push_back(NewInvariant(
        "APIArg", {{"is", "fact"},
                   {"function", {{"name", "f" + std::to_string(i)}}},
                   {"fact", kFacts[i % std::size(kFacts)]},
                   {"value", true}}));
  }
  return rules;
}

// Each a violation of its own, in the order of their steps.
std::vector<Verdict> Verdicts(int count) {
  std::mt19937 random(5);
  const auto below = [&random](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  std::vector<Verdict> verdicts;
  for (int i = 0; i < count; ++i) {
    Verdict verdict;
    verdict.rule = i % kRules;
    verdict.outcome = Outcome::kViolated;
    verdict.unit = i;
    verdict.step = i / 2;
    verdict.label = "window " + std::to_string(i);
    verdict.across_ranks = verdict.rule % 3 == 0;
    verdict.ranks = {below(kRanks)};
    if (verdict.across_ranks) verdict.ranks = {0, 1, 2, 3, 4, 5, 6, 7};
    verdict.finding.apis = {"torch.optim.adam.Adam.step"};
    verdict.finding.sites = {"train.py:" + std::to_string(verdict.rule)};
    verdict.finding.subjects = {"optimizer " + std::to_string(below(4))};
    verdict.finding.seen = "it is otherwise";
    verdict.finding.evidence = {"its mode was set last by Net.eval"};
    for (int variable = below(8); variable > 0; --variable) {
      verdict.finding.variables.push_back(
          "model.layer" + std::to_string(below(kVariables)) + ".weight");
    }
    verdicts.push_back(verdict);
  }
  return verdicts;
}

void KeepsViolations(benchmark::State& state) {
  const std::vector<Invariant> rules = Rules();
  const std::vector<Verdict> verdicts =
      Verdicts(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    ViolationBook book("run", [](uint32_t) { return std::string(); });
    size_t taken = 0;
    for (size_t i = 0; i < verdicts.size(); ++i) {
      book.Add(rules[verdicts[i].rule], verdicts[i]);
      if ((i + 1) % kBetweenTakes == 0) taken += book.TakeChanges().size();
    }
    benchmark::DoNotOptimize(taken);
  }
}
BENCHMARK(KeepsViolations)
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace traincheck

BENCHMARK_MAIN();
