// torch's element types by their ScalarType numbers, which are fixed from torch
// 2.4 on; new types get new numbers.
//
// Threads: pure functions.
#ifndef TRAINCHECK_AGENT_TORCH_DTYPE_H_
#define TRAINCHECK_AGENT_TORCH_DTYPE_H_

#include <cstdint>
#include <string_view>

namespace traincheck {

enum class Dtype : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex32 = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kBool = 11,
  kBfloat16 = 15,
  kFloat8E5m2 = 23,
  kFloat8E4m3fn = 24,
  kFloat8E5m2fnuz = 25,
  kFloat8E4m3fnuz = 26,
  kUint16 = 27,
  kUint32 = 28,
  kUint64 = 29,
  kFloat8E8m0fnu = 44,
  kFloat4E2m1fnX2 = 45,
  // Also 12-14, 16, 17 quantised, 18-22 bits, 30-43 integers below a byte.
  kUnknown = 255,
};

// "torch.float32", as Python prints it; "" for unknown numbers.
std::string_view DtypeName(Dtype dtype);
// Of one element in memory; 0 for unknown numbers.
uint8_t DtypeBytes(Dtype dtype);
// kUnknown for a name not in the table.
Dtype DtypeOfName(std::string_view name);

inline bool IsComplex(Dtype dtype) {
  return dtype == Dtype::kComplex32 || dtype == Dtype::kComplex64 ||
         dtype == Dtype::kComplex128;
}

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_TORCH_DTYPE_H_
