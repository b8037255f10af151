#include "agent/torch/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "agent/torch/small_floats.h"

namespace traincheck::agent {
namespace {

// One loop, compiled for each set of vectors. The dynamic linker chooses once,
// when the library is loaded, so that the loop has no test.
#define TRAINCHECK_VECTORS \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

// A type that the compiler knows too.
template <typename Float, typename Word, Word infinity>
struct Native {
  using Bits = Word;
  static constexpr Bits kInfinity = infinity;
  static double Value(Bits magnitude) {
    return std::bit_cast<Float>(magnitude);
  }
};
using Float64 = Native<double, uint64_t, 0x7ff0000000000000>;
using Float32 = Native<float, uint32_t, 0x7f800000>;

struct Bfloat16 {
  using Bits = uint16_t;
  static constexpr Bits kInfinity = 0x7f80;
  static double Value(Bits magnitude) {
    // A bfloat16 is the upper half of a float.
    return Float32::Value(static_cast<uint32_t>(magnitude) << 16);
  }
};

struct Float16 {
  using Bits = uint16_t;
  static constexpr Bits kInfinity = 0x7c00;
  // The result never comes from a subnormal float, because a program that has
  // called torch.set_flush_denormal(True) would read zero for it. Subnormals go
  // by way of an integer.
  static double Value(Bits magnitude) {
    const uint32_t wide = magnitude;
    const double normal =
        Float32::Value((wide << 13) + (uint32_t{127 - 15} << 23));
    const double subnormal =
        static_cast<double>(static_cast<int32_t>(wide)) * 0x1p-24;
    return wide < 0x400 ? subnormal : normal;
  }
};

// The loop over one block. Element i goes into sum i mod 8, which the header
// promises.
template <typename Float>
__attribute__((always_inline)) inline void Add(const char* data, size_t count,
                                               StatisticsSum::Sums* sums) {
  using Bits = typename Float::Bits;
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  // Lanes are separate, so that the compiler can keep each array in a vector.
  Bits largest[8] = {};
  Bits nans[8] = {}, infs[8] = {};  // a block has fewer elements than fit
  std::array<double, 8> squares = sums->squares;
  const double scale = sums->scale;
  const auto add = [&](size_t lane, const char* at) {
    Bits bits;
    std::memcpy(&bits, at, sizeof bits);
    // Counted without branches, so that the loop can be made of vectors.
    const Bits magnitude = bits & kMagnitude;
    nans[lane] += magnitude > Float::kInfinity;
    infs[lane] += magnitude == Float::kInfinity;
    const Bits finite = magnitude < Float::kInfinity ? magnitude : 0;
    largest[lane] = std::max(largest[lane], finite);
    double value = Float::Value(finite);
    // Only 64-bit types have squares beyond double: the others need no
    // division.
    if constexpr (sizeof(Bits) == 8) value /= scale;
    squares[lane] += value * value;
  };
  // The same eight sums on every processor, whatever its vectors: the order of
  // additions decides the last bits.
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (size_t lane = 0; lane < 8; ++lane) {
      add(lane, data + (i + lane) * sizeof(Bits));
    }
  }
  for (size_t lane = 0; i + lane < count; ++lane) {
    add(lane, data + (i + lane) * sizeof(Bits));
  }
  sums->squares = squares;
  for (size_t lane = 0; lane < 8; ++lane) {
    sums->largest = std::max<uint64_t>(sums->largest, largest[lane]);
    sums->nan_count += nans[lane];
    sums->inf_count += infs[lane];
  }
}

TRAINCHECK_VECTORS void AddFloat64(const char* data, size_t count,
                                   StatisticsSum::Sums* sums) {
  Add<Float64>(data, count, sums);
}
TRAINCHECK_VECTORS void AddFloat32(const char* data, size_t count,
                                   StatisticsSum::Sums* sums) {
  Add<Float32>(data, count, sums);
}
TRAINCHECK_VECTORS void AddBfloat16(const char* data, size_t count,
                                    StatisticsSum::Sums* sums) {
  Add<Bfloat16>(data, count, sums);
}
TRAINCHECK_VECTORS void AddFloat16(const char* data, size_t count,
                                   StatisticsSum::Sums* sums) {
  Add<Float16>(data, count, sums);
}

// The counters of a lane have as few bits as an element, at least 16. A call of
// 2^18 elements adds at most 2^15 to each of eight lanes.
constexpr size_t kMostAtOnce = size_t{1} << 18;  // elements, 8 to a counter

struct Kind {
  void (*add)(const char*, size_t, StatisticsSum::Sums*) = nullptr;
  double (*value)(uint64_t magnitude) = nullptr;
  size_t part_bytes = 0;  // of a real or imaginary part
};

template <typename Float>
double ValueOf(uint64_t magnitude) {
  return Float::Value(static_cast<typename Float::Bits>(magnitude));
}

// Nothing for types of 8 bits, which are counted by value instead, and for
// types that are not floating-point.
Kind KindOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return {AddFloat64, ValueOf<Float64>, 8};
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return {AddFloat32, ValueOf<Float32>, 4};
    case Dtype::kFloat16:
    case Dtype::kComplex32:
      return {AddFloat16, ValueOf<Float16>, 2};
    case Dtype::kBfloat16:
      return {AddBfloat16, ValueOf<Bfloat16>, 2};
    default:
      return {};
  }
}

}  // namespace

bool StatisticsSum::Has(Dtype dtype) {
  return KindOf(dtype).add != nullptr || IsSmallFloat(dtype);
}

StatisticsSum::StatisticsSum(Dtype dtype, double scale) : dtype_(dtype) {
  sums_.scale = scale;
}

// A block of any size is cut into pieces whose counts fit into the lanes'
// counters.
void StatisticsSum::Take(const char* data, size_t bytes) {
  const Kind kind = KindOf(dtype_);
  if (kind.add == nullptr) {
    // The values of 8-bit types are looked up once a distinct byte in
    // FinishBytes.
    for (size_t i = 0; i < bytes; ++i) ++times_[static_cast<uint8_t>(data[i])];
    return;
  }
  for (size_t left = bytes / kind.part_bytes; left != 0;) {
    const size_t count = std::min(left, kMostAtOnce);
    kind.add(data, count, &sums_);
    data += count * kind.part_bytes;
    left -= count;
  }
}

bool StatisticsSum::NeedsScale() const {
  if (KindOf(dtype_).part_bytes != 8 || sums_.largest == 0) return false;
  const double absmax = Float64::Value(sums_.largest);
  // Between these bounds neither the largest square nor a sum of squares comes
  // near the ends of double.
  return sums_.scale == 1 && (absmax > 1e140 || absmax < 1e-140);
}

// Partial sums are added in a fixed order, for the same last bits on every
// processor.
TensorStatistics StatisticsSum::Finish() const {
  TensorStatistics statistics;
  const Kind kind = KindOf(dtype_);
  if (kind.add == nullptr) {
    FinishBytes(&statistics);
    return statistics;
  }
  // These are squares of elements that were divided by the scale.
  double squares = 0;
  for (const double part : sums_.squares) squares += part;
  statistics.norm = std::sqrt(squares) * sums_.scale;
  statistics.absmax = kind.value(sums_.largest);
  statistics.nan_count = sums_.nan_count;
  statistics.inf_count = sums_.inf_count;
  return statistics;
}

void StatisticsSum::FinishBytes(TensorStatistics* statistics) const {
  double squares = 0;
  // At most 256 products, however many elements there are.
  for (size_t byte = 0; byte < times_.size(); ++byte) {
    if (times_[byte] == 0) continue;
    const auto times = static_cast<double>(times_[byte]);
    for (const double value : SmallFloats(dtype_, static_cast<uint8_t>(byte))) {
      if (std::isnan(value)) {
        statistics->nan_count += times_[byte];
      } else if (std::isinf(value)) {
        statistics->inf_count += times_[byte];
      } else {
        statistics->absmax = std::max(statistics->absmax, std::fabs(value));
        squares += times * value * value;
      }
    }
  }
  statistics->norm = std::sqrt(squares);
}

}  // namespace traincheck::agent
