#include "agent/torch/dtype.h"

#include <cstddef>

namespace traincheck {
namespace {

struct Entry {
  std::string_view name;
  uint8_t bytes;
};

// By number.
constexpr Entry kDtypes[] = {
    {"torch.uint8", 1},
    {"torch.int8", 1},
    {"torch.int16", 2},
    {"torch.int32", 4},
    {"torch.int64", 8},
    {"torch.float16", 2},
    {"torch.float32", 4},
    {"torch.float64", 8},
    {"torch.complex32", 4},
    {"torch.complex64", 8},
    {"torch.complex128", 16},
    {"torch.bool", 1},
    {"torch.qint8", 1},
    {"torch.quint8", 1},
    {"torch.qint32", 4},
    {"torch.bfloat16", 2},
    {"torch.quint4x2", 1},
    {"torch.quint2x4", 1},
    {"torch.bits1x8", 1},
    {"torch.bits2x4", 1},
    {"torch.bits4x2", 1},
    {"torch.bits8", 1},
    {"torch.bits16", 2},
    {"torch.float8_e5m2", 1},
    {"torch.float8_e4m3fn", 1},
    {"torch.float8_e5m2fnuz", 1},
    {"torch.float8_e4m3fnuz", 1},
    {"torch.uint16", 2},
    {"torch.uint32", 4},
    {"torch.uint64", 8},
    {"torch.uint1", 1},
    {"torch.uint2", 1},
    {"torch.uint3", 1},
    {"torch.uint4", 1},
    {"torch.uint5", 1},
    {"torch.uint6", 1},
    {"torch.uint7", 1},
    {"torch.int1", 1},
    {"torch.int2", 1},
    {"torch.int3", 1},
    {"torch.int4", 1},
    {"torch.int5", 1},
    {"torch.int6", 1},
    {"torch.int7", 1},
    {"torch.float8_e8m0fnu", 1},
    {"torch.float4_e2m1fn_x2", 1},
};
constexpr size_t kCount = sizeof kDtypes / sizeof kDtypes[0];

}  // namespace

std::string_view DtypeName(Dtype dtype) {
  const auto number = static_cast<size_t>(dtype);
  return number < kCount ? kDtypes[number].name : std::string_view();
}

uint8_t DtypeBytes(Dtype dtype) {
  const auto number = static_cast<size_t>(dtype);
  return number < kCount ? kDtypes[number].bytes : 0;
}

Dtype DtypeOfName(std::string_view name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (kDtypes[i].name == name) return static_cast<Dtype>(i);
  }
  return Dtype::kUnknown;
}

}  // namespace traincheck
