// Norm, largest magnitude and counts of NaN and Inf over floating-point
// elements.
//
// The norm is the square root of the sum of squares, in double: eight partial
// sums, element i in sum i mod 8 of its block, added in order of blocks.
// Squares of types up to 32 bits are exact, so the result depends on the
// content only, not on the processor. For 64-bit types squares that leave the
// range of double are summed a second time, divided by the largest magnitude
// before. Elements that are NaN or Inf are counted and left out of norm and
// largest magnitude. A complex element counts as two.
//
// Threads: none of its own; one object a thread.
#ifndef TRAINCHECK_AGENT_TORCH_STATISTICS_H_
#define TRAINCHECK_AGENT_TORCH_STATISTICS_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/torch_types.h"

namespace traincheck::agent {

struct TensorStatistics {
  double norm = 0;
  double absmax = 0;  // 0 where no element is finite
  uint64_t nan_count = 0;
  uint64_t inf_count = 0;
};

// Gathers over consecutive blocks of one tensor.
class StatisticsSum {
 public:
  // Are there statistics of these elements? (Floating point and complex.)
  static bool Has(Dtype dtype);

  // `scale` divides every element: only for a second pass.
  explicit StatisticsSum(Dtype dtype, double scale = 1);

  // `bytes` bytes: whole elements, a multiple of 64 except in the last block.
  void Take(const char* data, size_t bytes);

  TensorStatistics Finish() const;
  // Did the squares leave the range of double? Finish() is then right after a
  // second pass with the scale absmax.
  bool NeedsScale() const;

  // Inner loops' state.
  struct Sums {
    std::array<double, 8> squares = {};
    uint64_t largest = 0;  // magnitude as an unsigned integer of its width
    uint64_t nan_count = 0;
    uint64_t inf_count = 0;
    double scale = 1;
  };

 private:
  void FinishBytes(TensorStatistics* statistics) const;

  Dtype dtype_;
  Sums sums_;
  // Of 8-bit elements only how often each one comes is gathered.
  std::array<uint64_t, 256> times_ = {};
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_STATISTICS_H_
