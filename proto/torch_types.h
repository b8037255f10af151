// torch's element types, devices and layouts by their numbers (ScalarType,
// c10::DeviceType, c10::Layout), which are fixed from torch 2.4 on: what stands
// in a kValueTensor. New ones get new numbers.
//
// Threads: pure functions.
#ifndef TRAINCHECK_PROTO_TORCH_TYPES_H_
#define TRAINCHECK_PROTO_TORCH_TYPES_H_

#include <cstdint>
#include <string_view>

namespace traincheck {

// Of a device or a layout that is not known.
inline constexpr uint8_t kUnknownNumber = 255;

inline constexpr uint8_t kDeviceCpu = 0;
inline constexpr uint8_t kDeviceCuda = 1;
inline constexpr uint8_t kDeviceMeta = 14;
inline constexpr uint8_t kDevicePrivateUse1 = 20;
inline constexpr uint8_t kLayoutStrided = 0;

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

// "cuda"; "" for numbers without a name here.
std::string_view DeviceTypeName(uint8_t device);
// kDevicePrivateUse1 for other names: such a device is named by its maker.
uint8_t DeviceTypeOfName(std::string_view name);
// Of "torch.strided"; kUnknownNumber for a name not in the table.
uint8_t LayoutOfName(std::string_view name);

inline bool IsComplex(Dtype dtype) {
  return dtype == Dtype::kComplex32 || dtype == Dtype::kComplex64 ||
         dtype == Dtype::kComplex128;
}

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_TORCH_TYPES_H_
