// The digest of a buffer against a plain 64-bit sum of the same buffer, one
// thread. Compare the speeds of a pair in one run.
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "agent/torch/digest.h"

namespace traincheck {
namespace {

std::vector<uint64_t> Words(int64_t bytes) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(static_cast<size_t>(bytes) / 8);
  for (uint64_t& word : words) word = random();
  return words;
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),
               optimize("O3"))) uint64_t
PlainSum(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

void BM_PlainSum(benchmark::State& state) {
  const std::vector<uint64_t> words = Words(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(PlainSum(words.data(), words.size()));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void BM_Digest(benchmark::State& state) {
  const std::vector<uint64_t> words = Words(state.range(0));
  for (auto _ : state) {
    benchmark::DoNotOptimize(SumWords(words.data(), words.size() * 8));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

constexpr int64_t kMiB = 1 << 20;
BENCHMARK(BM_PlainSum)->Arg(kMiB)->Arg(256 * kMiB);
BENCHMARK(BM_Digest)->Arg(kMiB)->Arg(256 * kMiB);

}  // namespace
}  // namespace traincheck
