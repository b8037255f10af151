// The digest of a buffer against a plain 64-bit sum of the same buffer, one
// thread. Compare the speeds of a pair in one run: they alternate, and the
// best of many rounds counts, because other programs take memory bandwidth.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "agent/torch/digest.h"

namespace traincheck::agent {
namespace {

std::vector<uint64_t> Words(int64_t bytes) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(static_cast<size_t>(bytes) / 8);
  for (uint64_t& word : words) word = random();
  return words;
}

#ifdef __clang__  // which reads the sources and knows no such attribute
#define TRAINCHECK_VECTORISED
#else
#define TRAINCHECK_VECTORISED __attribute__((optimize("O3")))
#endif

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
TRAINCHECK_VECTORISED uint64_t
PlainSum(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

// This thread's own time: other programs may run in between.
double ProcessorNanoseconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 +
         static_cast<double>(time.tv_nsec);
}

template <typename Run>
double GigabytesPerSecond(const std::vector<uint64_t>& words, const Run& run) {
  const double start_ns = ProcessorNanoseconds();
  benchmark::DoNotOptimize(run());
  return static_cast<double>(words.size() * 8) /
         (ProcessorNanoseconds() - start_ns);
}

void CompareWithSum(VectorSet vectors, const char* name, int64_t bytes) {
  if (vectors > BestVectorSet()) return;
  const std::vector<uint64_t> words = Words(bytes);
  const auto* data = reinterpret_cast<const char*>(words.data());
  const int rounds = static_cast<int>((int64_t{4} << 30) / bytes);
  double sum = 0, digest = 0;
  for (int i = 0; i < rounds; ++i) {
    sum = std::max(sum, GigabytesPerSecond(words, [&] {
                     return PlainSum(words.data(), words.size());
                   }));
    digest =
        std::max(digest, GigabytesPerSecond(words, [&] {
                   return SumWholeWordsWith(vectors, data, words.size(), 0).sum;
                 }));
  }
  std::printf("%-8s %4ld MiB: %.1f GB/s, plain sum %.1f GB/s: %.0f%%\n", name,
              bytes >> 20, digest, sum, 100 * digest / sum);
}

void BM_Digest(benchmark::State& state) {
  const std::vector<uint64_t> words = Words(state.range(0) + 8);
  for (auto _ : state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    benchmark::DoNotOptimize(FinishDigest(SumWords(words.data(), bytes).sum,
                                          bytes, Dtype::kFloat32));
  }
}
// 1, 100 and 10,000 elements of four bytes.
BENCHMARK(BM_Digest)->Arg(4)->Arg(400)->Arg(40000);

}  // namespace
}  // namespace traincheck::agent

int main(int argc, char** argv) {
  using traincheck::agent::VectorSet;
  for (const int64_t bytes : {int64_t{1} << 20, int64_t{256} << 20}) {
    traincheck::agent::CompareWithSum(VectorSet::kAvx512, "AVX-512", bytes);
    traincheck::agent::CompareWithSum(VectorSet::kAvx2, "AVX2", bytes);
    traincheck::agent::CompareWithSum(VectorSet::kNone, "scalar", bytes);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
