// Changes of a tensor that the digest misses: random trials of several kinds.
// Prints a line a kind and ends with 1 if any was missed.
//
//   digest_quality [trials]     of each kind, on each kind of content
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "agent/torch/digest.h"

namespace traincheck::agent {
namespace {

using Random = std::mt19937_64;
using Bytes = std::vector<char>;

constexpr size_t kElements = 512;
constexpr size_t kRows = 16;

struct Tensor {
  std::string name;
  size_t element_bytes;
  Bytes bytes;
};

template <typename Element>
Tensor Make(const std::string& name, const std::function<Element(size_t)>& at) {
  Tensor tensor = {name, sizeof(Element), Bytes(kElements * sizeof(Element))};
  for (size_t i = 0; i < kElements; ++i) {
    const Element element = at(i);
    std::memcpy(tensor.bytes.data() + i * sizeof element, &element,
                sizeof element);
  }
  return tensor;
}

uint16_t Bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

std::vector<Tensor> Tensors(Random& random) {
  std::normal_distribution<float> normal;
  return {
      Make<float>("normal float32", [&](size_t) { return normal(random); }),
      Make<float>("counting float32",
                  [](size_t i) { return static_cast<float>(i); }),
      Make<float>("sparse float32",
                  [&](size_t i) { return i % 10 == 3 ? normal(random) : 0; }),
      Make<uint16_t>("normal bfloat16",
                     [&](size_t) { return Bfloat16(normal(random)); }),
      Make<int64_t>("counting int64",
                    [](size_t i) { return static_cast<int64_t>(i); }),
      Make<uint8_t>("random bytes",
                    [&](size_t) { return static_cast<uint8_t>(random()); }),
  };
}

void Swap(Bytes& bytes, size_t a, size_t b, size_t size) {
  std::swap_ranges(bytes.begin() + a * size, bytes.begin() + (a + 1) * size,
                   bytes.begin() + b * size);
}

void SwapWords(Tensor& tensor, Random& random) {
  const size_t words = tensor.bytes.size() / 8;
  Swap(tensor.bytes, random() % words, random() % words, 8);
}

void SwapElements(Tensor& tensor, Random& random) {
  Swap(tensor.bytes, random() % kElements, random() % kElements,
       tensor.element_bytes);
}

void FlipSigns(Tensor& tensor, Random& random) {
  for (size_t left = 2 + random() % 15; left != 0; --left) {
    const size_t element = random() % kElements;
    tensor.bytes[(element + 1) * tensor.element_bytes - 1] ^= '\x80';
  }
}

void FlipSignsOfARange(Tensor& tensor, Random& random) {
  const size_t begin = random() % (kElements - 1);
  const size_t end = begin + 2 + random() % (kElements - begin - 1);
  for (size_t i = begin; i < std::min(end, kElements); ++i) {
    tensor.bytes[(i + 1) * tensor.element_bytes - 1] ^= '\x80';
  }
}

void PermuteRows(Tensor& tensor, Random& random) {
  const size_t row = tensor.bytes.size() / kRows;
  for (size_t i = kRows - 1; i > 0; --i) {
    Swap(tensor.bytes, i, random() % (i + 1), row);
  }
}

void Shift(Tensor& tensor, Random& random) {
  const size_t by = 1 + random() % (kElements - 1);
  std::rotate(tensor.bytes.begin(),
              tensor.bytes.begin() + by * tensor.element_bytes,
              tensor.bytes.end());
}

// The end is lost, zeros come in at the begin.
void ShiftOut(Tensor& tensor, Random& random) {
  const size_t by = (1 + random() % (kElements - 1)) * tensor.element_bytes;
  std::copy_backward(tensor.bytes.begin(), tensor.bytes.end() - by,
                     tensor.bytes.end());
  std::fill_n(tensor.bytes.begin(), by, 0);
}

void FlipTwoBits(Tensor& tensor, Random& random) {
  for (int i = 0; i < 2; ++i) {
    const size_t bit = random() % (8 * tensor.bytes.size());
    tensor.bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
}

// One element grows by what another one loses, as integers.
void Compensate(Tensor& tensor, Random& random) {
  ++tensor.bytes[random() % kElements * tensor.element_bytes];
  --tensor.bytes[random() % kElements * tensor.element_bytes];
}

void ZeroTail(Tensor& tensor, Random& random) {
  const size_t from = random() % kElements * tensor.element_bytes;
  std::fill(tensor.bytes.begin() + from, tensor.bytes.end(), 0);
}

void ReplaceSeveralWords(Tensor& tensor, Random& random) {
  const size_t words = tensor.bytes.size() / 8;
  for (size_t left = 2 + random() % 7; left != 0; --left) {
    const uint64_t word = random();
    std::memcpy(tensor.bytes.data() + random() % words * 8, &word, 8);
  }
}

struct Kind {
  const char* name;
  void (*change)(Tensor&, Random&);
};
constexpr Kind kKinds[] = {
    {"two words swapped", SwapWords},
    {"two elements swapped", SwapElements},
    {"signs of 2 to 16 elements flipped", FlipSigns},
    {"signs of a range flipped", FlipSignsOfARange},
    {"rows permuted", PermuteRows},
    {"rotated by some elements", Shift},
    {"shifted, zeros come in", ShiftOut},
    {"two bits flipped", FlipTwoBits},
    {"+1 here, -1 there", Compensate},
    {"tail zeroed", ZeroTail},
    {"2 to 8 words replaced", ReplaceSeveralWords},
};

uint64_t Sum(const Bytes& bytes) {
  return SumWords(bytes.data(), bytes.size()).sum;
}

struct Count {
  uint64_t changes = 0;
  uint64_t missed = 0;
};

// Trials that leave the content as it was do not count.
Count Try(const Kind& kind, const Tensor& tensor, uint64_t trials,
          Random& random) {
  Count count;
  const uint64_t before = Sum(tensor.bytes);
  Tensor changed = tensor;
  while (count.changes < trials) {
    changed.bytes = tensor.bytes;
    kind.change(changed, random);
    if (changed.bytes == tensor.bytes) continue;
    ++count.changes;
    count.missed += Sum(changed.bytes) == before;
  }
  return count;
}

int Main(uint64_t trials) {
  Random random(20240501);
  const std::vector<Tensor> tensors = Tensors(random);
  uint64_t missed = 0;
  for (const Kind& kind : kKinds) {
    Count total;
    for (const Tensor& tensor : tensors) {
      const Count count = Try(kind, tensor, trials, random);
      total.changes += count.changes;
      total.missed += count.missed;
    }
    std::printf("%-36s %10lu changes, %lu missed\n", kind.name, total.changes,
                total.missed);
    std::fflush(stdout);
    missed += total.missed;
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace traincheck::agent

int main(int argc, char** argv) {
  return traincheck::agent::Main(argc > 1 ? std::strtoull(argv[1], nullptr, 10)
                                          : 1000000);
}
