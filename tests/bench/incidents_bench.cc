// How long it takes to find the incidents of many violations.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "checker/incidents/incidents.h"

namespace traincheck {
namespace {

constexpr int kRules = 1000;
constexpr int kVariables = 400;
constexpr int kRungs = static_cast<int>(Rung::kTotals) + 1;

// Of kRules rules, each broken by several units, on eight ranks.
std::vector<IncidentPart> Parts(int count) {
  std::mt19937 random(5);
  const auto below = [&random](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  std::vector<IncidentPart> parts;
  for (int i = 0; i < count; ++i) {
    const int rule = i % kRules;
    IncidentPart part;
    part.id = std::to_string(i);
    part.first_step = below(5000);
    part.last_step = *part.first_step + below(500);
    part.ranks = {below(8)};
    for (int variable = below(8); variable >= 0; --variable) {
      part.variables.push_back("model.layer" +
                               std::to_string(below(kVariables)) + ".weight");
    }
    part.place = {static_cast<Rung>(rule % kRungs), 0, rule % 3 == 0};
    part.advice = rule % 4 == 0;
    part.headline = "rule " + std::to_string(rule);
    // As many as built-in rules have at most.
    for (int other = 1; other <= 4; ++other) {
      part.brings.push_back("rule " + std::to_string((rule + other) % kRules));
    }
    parts.push_back(part);
  }
  return parts;
}

void FindsIncidents(benchmark::State& state) {
  const std::vector<IncidentPart> parts =
      Parts(static_cast<int>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(FindIncidents(parts));
}
BENCHMARK(FindsIncidents)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(10000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace traincheck

BENCHMARK_MAIN();
