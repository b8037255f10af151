#include "agent/device/digest_tables.h"

#include <cstring>

#include "agent/torch/lazy_signs.h"

namespace traincheck::agent {
namespace {

// The bits of an even and an odd word that differ between memory and what a
// reader of the tensor sees. Lazy negation and conjugation change sign bits
// only, so applying them to zeros gives the mask. 16 bytes hold the largest
// element, whose second word is its imaginary part.
void TakeFlips(const StridedContent& content, DigestItem* item) {
  char zeros[16] = {};
  if (content.negative()) Negate(content.dtype(), zeros, sizeof zeros);
  if (content.conjugate()) Conjugate(content.dtype(), zeros, sizeof zeros);
  std::memcpy(&item->flip_even, zeros, 8);
  std::memcpy(&item->flip_odd, zeros + 8, 8);
}

// See DigestItem::exponents. The kernel finds NaN and Inf by an exponent of
// ones.
DeviceWord ExponentsOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
    case Dtype::kComplex32:
      return 0x7c007c007c007c00;
    case Dtype::kBfloat16:
      return 0x7f807f807f807f80;
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return 0x7f8000007f800000;
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return 0x7ff0000000000000;
    case Dtype::kFloat8E5m2:
      return 0x7c7c7c7c7c7c7c7c;
    case Dtype::kFloat8E4m3fn:  // no infinity; NaN has all bits but the sign
      return 0x7f7f7f7f7f7f7f7f;
    default:  // not floating-point, or NaN has other bits
      return 0;
  }
}

}  // namespace

// A lazily negated integer is a two's complement, which no mask of bits can
// express.
bool DigestTables::Takes(const StridedContent& content) {
  return !content.negative() || FlipsSignBits(content.dtype());
}

// A chunk is the unit of work of a warp, kChunkWords words of 8 bytes.
DeviceWord DigestTables::ChunksOf(const StridedContent& content) {
  return (content.bytes() + 8 * kChunkWords - 1) / (8 * kChunkWords);
}

void DigestTables::Clear() {
  items_.clear();
  dims_.clear();
  chunks_ = 0;
  copied_words_ = 0;
}

void DigestTables::Add(const StridedContent& content) { Add(content, false); }

void DigestTables::AddCopied(const StridedContent& content) {
  Add(content, true);
}

void DigestTables::Add(const StridedContent& content, bool is_copied) {
  DigestItem item = {};
  item.address = reinterpret_cast<DeviceWord>(content.data());
  item.bytes = content.bytes();
  item.element_bytes = static_cast<unsigned>(content.element_bytes());
  item.exponents = ExponentsOf(content.dtype());
  item.first_chunk = chunks_;
  item.first_dim = static_cast<unsigned>(dims_.size());
  TakeFlips(content, &item);
  // A content that is one block of memory has no dimensions and reads at full
  // speed.
  for (const StridedContent::Dimension& dim : content.dimensions()) {
    dims_.push_back({static_cast<DeviceWord>(dim.size),
                     static_cast<DeviceWord>(dim.stride_bytes)});
  }
  // The kernel flips and copies only words that it gathers element by element,
  // so a dense content that needs either is described as one dimension.
  const bool flips = item.flip_even != 0 || item.flip_odd != 0;
  if (content.dimensions().empty() && (flips || is_copied)) {
    dims_.push_back({item.bytes / item.element_bytes, item.element_bytes});
  }
  item.ndim = static_cast<unsigned>(dims_.size()) - item.first_dim;
  chunks_ += static_cast<unsigned>(ChunksOf(content));
  // The place is stored plus one, so that 0 says "not copied".
  if (is_copied) {
    item.copy_at = copied_words_ + 1;
    copied_words_ += static_cast<unsigned>((item.bytes + 7) / 8);
  }
  items_.push_back(item);
}

ContentDigest FinishWords(const DigestWords& words, uint64_t bytes,
                          Dtype dtype) {
  return {FinishDigest(words.sum, bytes, dtype),
          (words.flags & kDigestNotZero) == 0};
}

std::optional<bool> IsFinite(const DigestWords& words, Dtype dtype) {
  if (ExponentsOf(dtype) == 0) return std::nullopt;
  return (words.flags & kDigestNotFinite) == 0;
}

}  // namespace traincheck::agent
