#include "agent/torch/small_floats.h"

#include <cmath>
#include <limits>

namespace traincheck::agent {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// A value from sign, exponent and mantissa, as all formats here share it. The
// callers have handled the patterns of NaN and infinity.
double Value(uint8_t bits, int mantissa_bits, int exponent_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const bool negative = (bits >> (mantissa_bits + exponent_bits)) & 1;
  // The lowest exponent is that of subnormals, which have no leading one.
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const int shift = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
  const double magnitude = std::ldexp(whole, shift);
  return negative ? -magnitude : magnitude;
}

double Float8(Dtype dtype, uint8_t byte) {
  const uint8_t magnitude = byte & 0x7f;
  // The suffixes say what patterns are spent on: fn has no infinities, and fnuz
  // no negative zero either, whose pattern is its NaN.
  switch (dtype) {
    case Dtype::kFloat8E5m2:
      if (magnitude > 0x7c) return kNan;
      if (magnitude == 0x7c) return byte == 0x7c ? kInf : -kInf;
      return Value(byte, 2, 5, 15);
    case Dtype::kFloat8E4m3fn:
      return magnitude == 0x7f ? kNan : Value(byte, 3, 4, 7);
    case Dtype::kFloat8E5m2fnuz:
      return byte == 0x80 ? kNan : Value(byte, 2, 5, 16);
    case Dtype::kFloat8E4m3fnuz:
      return byte == 0x80 ? kNan : Value(byte, 3, 4, 8);
    default:  // kFloat8E8m0fnu: an exponent and nothing else
      return byte == 0xff ? kNan : std::ldexp(1.0, byte - 127);
  }
}

}  // namespace

bool IsSmallFloat(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat8E5m2:
    case Dtype::kFloat8E4m3fn:
    case Dtype::kFloat8E5m2fnuz:
    case Dtype::kFloat8E4m3fnuz:
    case Dtype::kFloat8E8m0fnu:
    case Dtype::kFloat4E2m1fnX2:
      return true;
    default:
      return false;
  }
}

// The pair of 4-bit floats has its first element in the lower half of the byte.
std::vector<double> SmallFloats(Dtype dtype, uint8_t byte) {
  if (dtype == Dtype::kFloat4E2m1fnX2) {
    return {Value(byte & 15, 1, 2, 1), Value(byte >> 4, 1, 2, 1)};
  }
  return {Float8(dtype, byte)};
}

}  // namespace traincheck::agent
