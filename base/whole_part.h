// Numbers of unknown origin as integers. A plain cast of one that is too large,
// infinite or NaN is undefined.
//
// Threads: pure function.
#ifndef TRAINCHECK_BASE_WHOLE_PART_H_
#define TRAINCHECK_BASE_WHOLE_PART_H_

#include <cstdint>
#include <optional>

namespace traincheck {

// 2 of 2.5, -2 of -2.5; nullopt: NaN, or beyond int64_t.
inline std::optional<int64_t> WholePart(double number) {
  constexpr double kBound = 0x1p63;
  if (!(number >= -kBound && number < kBound)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_WHOLE_PART_H_
