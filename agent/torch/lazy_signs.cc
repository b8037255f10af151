#include "agent/torch/lazy_signs.h"

#include <cstdint>
#include <cstring>

namespace traincheck::agent {
namespace {

enum class Sign { kNone, kBit, kTwosComplement };

struct Part {
  Sign sign = Sign::kNone;
  size_t bytes = 0;  // of an element, or of one half of a complex one
};

// Torch refuses to negate all types that are missing here, so that no tensor of
// such a type carries the flag.
Part PartOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
    case Dtype::kComplex32:
      return {Sign::kBit, 2};
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return {Sign::kBit, 4};
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return {Sign::kBit, 8};
    case Dtype::kInt8:
    case Dtype::kUint8:
    case Dtype::kInt16:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return {Sign::kTwosComplement, DtypeBytes(dtype)};
    default:
      return {};
  }
}

// Signs are flipped as bits and not computed in floating point, so that NaN
// keeps its payload and 0.0 becomes -0.0.
template <typename Bits>
void NegateOne(char* at, Sign sign) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  constexpr Bits kSignBit = static_cast<Bits>(Bits{1} << (8 * sizeof bits - 1));
  // As unsigned numbers: the smallest integer has no negative, and stays what
  // it is, as in torch.
  bits =
      static_cast<Bits>(sign == Sign::kBit ? bits ^ kSignBit : Bits{0} - bits);
  std::memcpy(at, &bits, sizeof bits);
}

// Every part from byte `from` on, `step` bytes apart.
void NegateParts(Part part, char* data, size_t from, size_t step,
                 size_t bytes) {
  for (size_t i = from; i < bytes; i += step) {
    switch (part.bytes) {
      case 1:
        NegateOne<uint8_t>(data + i, part.sign);
        break;
      case 2:
        NegateOne<uint16_t>(data + i, part.sign);
        break;
      case 4:
        NegateOne<uint32_t>(data + i, part.sign);
        break;
      default:
        NegateOne<uint64_t>(data + i, part.sign);
        break;
    }
  }
}

}  // namespace

bool CanNegate(Dtype dtype) { return PartOf(dtype).sign != Sign::kNone; }

bool FlipsSignBits(Dtype dtype) { return PartOf(dtype).sign == Sign::kBit; }

void Negate(Dtype dtype, char* data, size_t bytes) {
  const Part part = PartOf(dtype);
  NegateParts(part, data, 0, part.bytes, bytes);
}

void Conjugate(Dtype dtype, char* data, size_t bytes) {
  // The second half of each element is its imaginary part.
  const Part part = PartOf(dtype);
  NegateParts(part, data, part.bytes, 2 * part.bytes, bytes);
}

}  // namespace traincheck::agent
