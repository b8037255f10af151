#include "proto/torch_types.h"

#include <cstddef>
#include <iterator>

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
constexpr size_t kCount = std::size(kDtypes);

// By number.
constexpr std::string_view kDevices[] = {
    "cpu",  "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip",
    "fpga", "maia", "xla",    "vulkan", "metal",  "xpu",   "mps",
    "meta", "hpu",  "ve",     "lazy",   "ipu",    "mtia",
};
constexpr std::string_view kLayouts[] = {
    "torch.strided",    "torch.sparse_coo", "torch.sparse_csr", "torch._mkldnn",
    "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc", "torch.jagged",
};

// A name that torch has added later is not in the table and gets `otherwise`.
template <size_t count>
uint8_t NumberOf(const std::string_view (&table)[count], std::string_view name,
                 uint8_t otherwise) {
  for (size_t number = 0; number < count; ++number) {
    if (table[number] == name) return static_cast<uint8_t>(number);
  }
  return otherwise;
}

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

std::string_view DeviceTypeName(uint8_t device) {
  return device < std::size(kDevices) ? kDevices[device] : std::string_view();
}

uint8_t DeviceTypeOfName(std::string_view name) {
  return NumberOf(kDevices, name, kDevicePrivateUse1);
}

uint8_t LayoutOfName(std::string_view name) {
  return NumberOf(kLayouts, name, kUnknownNumber);
}

}  // namespace traincheck
