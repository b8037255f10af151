#include "agent/torch/content.h"

#include <algorithm>
#include <cstring>

#include "agent/torch/digest.h"
#include "agent/torch/lazy_signs.h"

namespace traincheck::agent {
namespace {

// A block stays in the first-level cache while digest, statistics and rows read
// it.
constexpr size_t kBlockBytes = 16u << 10;
constexpr int32_t kMaxDimensions = 64;  // torch's own limit

// The size is known to the compiler, so that each element is one load and one
// store.
template <size_t kBytes>
void CopyElements(const char* from, int64_t stride_bytes, size_t count,
                  char* to) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * kBytes, from, kBytes);
    from += stride_bytes;
  }
}

void CopyElements(size_t element_bytes, const char* from, int64_t stride_bytes,
                  size_t count, char* to) {
  switch (element_bytes) {
    case 1:
      return CopyElements<1>(from, stride_bytes, count, to);
    case 2:
      return CopyElements<2>(from, stride_bytes, count, to);
    case 4:
      return CopyElements<4>(from, stride_bytes, count, to);
    case 8:
      return CopyElements<8>(from, stride_bytes, count, to);
    default:
      return CopyElements<16>(from, stride_bytes, count, to);
  }
}

// The digest of a run of bytes that comes in pieces of any length. A row of a
// tensor need not begin or end on a word's boundary in the blocks.
class RunningDigest {
 public:
  // Words are those of the run, not of its pieces: what is left of a piece
  // waits for the next one.
  void Take(const char* data, size_t bytes) {
    if (part_ != 0) {
      const size_t more = std::min(bytes, sizeof word_ - part_);
      std::memcpy(word_ + part_, data, more);
      part_ += more;
      data += more;
      bytes -= more;
      if (part_ == sizeof word_) FlushPart();
    }
    // The whole piece went into the word that waits, which must stay as it is.
    if (bytes == 0) return;
    const size_t whole = bytes / sizeof word_ * sizeof word_;
    sum_ += SumWords(data, whole, next_word_);
    next_word_ += whole / sizeof word_;
    part_ = bytes - whole;
    // The bytes of an unfinished word wait for the next piece.
    std::memcpy(word_, data + whole, part_);
  }
  DigestSum Finish() {
    FlushPart();
    return sum_;
  }

 private:
  void FlushPart() {
    sum_ += SumWords(word_, part_, next_word_++);
    part_ = 0;
  }

  DigestSum sum_;
  uint64_t next_word_ = 0;
  char word_[8];
  size_t part_ = 0;  // bytes in word_
};

// Cuts the content into slices of the first dimension, whose digests are those
// of tensors of their own. Rows end anywhere within blocks.
class RowDigests {
 public:
  RowDigests(uint64_t row_bytes, Dtype dtype)
      : row_bytes_(row_bytes), dtype_(dtype) {}

  void Take(const char* data, size_t bytes) {
    while (bytes != 0) {
      const size_t piece = std::min<uint64_t>(bytes, row_bytes_ - in_row_);
      row_.Take(data, piece);
      data += piece;
      bytes -= piece;
      in_row_ += piece;
      if (in_row_ == row_bytes_) FinishRow();
    }
  }
  void FinishRow() {
    digests_.push_back(FinishDigest(row_.Finish().sum, row_bytes_, dtype_));
    row_ = RunningDigest();
    in_row_ = 0;
  }
  std::vector<uint64_t> Release() { return std::move(digests_); }

 private:
  const uint64_t row_bytes_;
  const Dtype dtype_;
  RunningDigest row_;
  uint64_t in_row_ = 0;
  std::vector<uint64_t> digests_;
};

}  // namespace

// Finds size and extent. Only if the elements do not lie densely in row-major
// order, it also fills dimensions_, with dimensions merged that follow each
// other without a gap.
bool StridedContent::TakeDimensions(const StridedTensor& tensor) {
  // The extent is at least one element; each dimension adds the way to its last
  // index.
  bytes_ = extent_ = element_bytes_;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.sizes[i] < 0 || tensor.strides[i] < 0) return false;
    bytes_ *= static_cast<uint64_t>(tensor.sizes[i]);
  }
  if (bytes_ == 0) {
    extent_ = 0;
    return true;
  }
  // Innermost first: in a dense tensor, the stride of a dimension is the
  // product of all sizes inside it.
  int64_t dense_stride = 1;
  bool dense = true;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    const int64_t size = tensor.sizes[i];
    // The stride of a dimension of size 1 may be anything and means nothing.
    if (size == 1) continue;
    dense = dense && tensor.strides[i] == dense_stride;
    dense_stride *= size;
    extent_ += static_cast<uint64_t>(size - 1) *
               static_cast<uint64_t>(tensor.strides[i]) * element_bytes_;
  }
  if (dense) return true;
  // Outermost first, so that back() is the dimension around the next one.
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    const Dimension next = {
        tensor.sizes[i],
        tensor.strides[i] * static_cast<int64_t>(element_bytes_)};
    if (next.size == 1) continue;
    // The outer dimension goes on where the inner one ends: one dimension.
    if (!dimensions_.empty() &&
        dimensions_.back().stride_bytes == next.size * next.stride_bytes) {
      dimensions_.back() = {dimensions_.back().size * next.size,
                            next.stride_bytes};
    } else {
      dimensions_.push_back(next);
    }
  }
  return true;
}

// Knows nothing of the storage: before the memory is read, the caller compares
// extent() with it.
std::optional<StridedContent> StridedContent::Of(const StridedTensor& tensor) {
  StridedContent content;
  content.data_ = static_cast<const char*>(tensor.data);
  content.dtype_ = tensor.dtype;
  content.element_bytes_ = DtypeBytes(tensor.dtype);
  content.negative_ = tensor.negative;
  content.conjugate_ = tensor.conjugate;
  if (content.element_bytes_ == 0 || tensor.ndim < 0 ||
      tensor.ndim > kMaxDimensions ||
      (tensor.negative && !CanNegate(tensor.dtype)) ||
      (tensor.conjugate && !IsComplex(tensor.dtype)) ||
      !content.TakeDimensions(tensor)) {
    return std::nullopt;
  }
  content.rows_ = tensor.ndim == 0 ? 1 : static_cast<uint64_t>(tensor.sizes[0]);
  return content;
}

// Gathers elements with gaps between them, or with lazy signs, into blocks.
template <typename Take>
void StridedContent::GatherBlocks(const Take& take) const {
  alignas(64) char block[kBlockBytes];  // a whole number of elements
  size_t used = 0;
  const auto flush = [&] {
    if (negative_) Negate(dtype_, block, used);
    if (conjugate_) Conjugate(dtype_, block, used);
    take(block, used);
    used = 0;
  };
  const auto gap = static_cast<int64_t>(element_bytes_);
  // Element by element would be slow: the innermost dimension is copied in
  // runs, and the others are counted through. A dense content with lazy signs
  // has no dimensions and is one run.
  const Dimension inner =
      dimensions_.empty()
          ? Dimension{static_cast<int64_t>(bytes_ / element_bytes_), gap}
          : dimensions_.back();
  std::vector<int64_t> index(dimensions_.empty() ? 0 : dimensions_.size() - 1);
  const char* row = data_;
  while (true) {
    // Blocks are filled across rows, so that short rows do not make short
    // blocks.
    for (int64_t done = 0; done < inner.size;) {
      const size_t count = std::min(static_cast<size_t>(inner.size - done),
                                    (kBlockBytes - used) / element_bytes_);
      CopyElements(element_bytes_, row + done * inner.stride_bytes,
                   inner.stride_bytes, count, block + used);
      used += count * element_bytes_;
      done += static_cast<int64_t>(count);
      if (used == kBlockBytes) flush();
    }
    // Moves `row` to the next row as an odometer turns: the innermost counter
    // that is not at its end rises, and those inside it go back to zero.
    size_t at = index.size();
    while (at > 0) {
      const Dimension& outer = dimensions_[at - 1];
      row += outer.stride_bytes;
      if (++index[at - 1] < outer.size) break;
      row -= outer.size * outer.stride_bytes;
      index[--at] = 0;
    }
    if (at == 0) break;
  }
  if (used != 0) flush();
}

template <typename Take>
void StridedContent::ForEachBlock(const Take& take) const {
  if (bytes_ == 0) return;
  if (!IsBlock()) {
    GatherBlocks(take);
    return;
  }
  // In blocks here, too, so that everything that reads a block finds it in the
  // cache.
  for (uint64_t at = 0; at < bytes_; at += kBlockBytes) {
    take(data_ + at, std::min<uint64_t>(kBlockBytes, bytes_ - at));
  }
}

// The common case, digests without statistics, needs no blocks for dense
// content: SumWords reads the memory once in any case.
ContentDigest StridedContent::Digest() const {
  DigestSum sum;
  if (IsBlock()) {
    sum = SumWords(data_, bytes_, 0);
  } else {
    uint64_t next_word = 0;
    ForEachBlock([&](const char* block, size_t bytes) {
      sum += SumWords(block, bytes, next_word);
      // Only the last block can end within a word.
      next_word += bytes / 8;
    });
  }
  return {FinishDigest(sum.sum, bytes_, dtype_), sum.any_bits == 0};
}

// 64 words spread evenly show, at the cost of 64 cache lines, most changes of a
// large tensor. The first words of equal stretches are taken; the result is a
// hint and no proof.
std::optional<ContentSample> StridedContent::Sample() const {
  constexpr uint64_t kWords = 64;
  const uint64_t stride = bytes_ / kWords / sizeof(uint64_t) * sizeof(uint64_t);
  if (!IsBlock() || stride == 0) return std::nullopt;
  uint64_t words[kWords];
  uint64_t nonzero = 0;
  for (uint64_t i = 0; i < kWords; ++i) {
    std::memcpy(&words[i], data_ + i * stride, sizeof words[i]);
    nonzero += words[i] != 0 ? 1 : 0;
  }
  return ContentSample{SumWords(words, sizeof words).sum, nonzero > kWords / 2};
}

TensorStatistics StridedContent::ScaledStatistics(double scale) const {
  StatisticsSum statistics(dtype_, scale);
  ForEachBlock(
      [&](const char* block, size_t bytes) { statistics.Take(block, bytes); });
  return statistics.Finish();
}

// One pass for everything that is wanted, because reading the memory costs the
// most.
ContentSummary StridedContent::Summarize(ContentWanted wanted) const {
  const bool has_statistics = wanted.statistics && StatisticsSum::Has(dtype_);
  DigestSum sum;
  uint64_t next_word = 0;
  StatisticsSum statistics(dtype_);
  RowDigests rows(rows_ == 0 ? 0 : bytes_ / rows_, dtype_);
  ForEachBlock([&](const char* block, size_t bytes) {
    sum += SumWords(block, bytes, next_word);
    next_word += bytes / 8;
    if (has_statistics) statistics.Take(block, bytes);
    if (wanted.rows) rows.Take(block, bytes);
  });
  ContentSummary summary;
  summary.content = {FinishDigest(sum.sum, bytes_, dtype_), sum.any_bits == 0};
  if (has_statistics) {
    summary.statistics = statistics.Finish();
    // Squares that left the range of double are rare: only then the content is
    // read a second time.
    if (statistics.NeedsScale()) {
      summary.statistics = ScaledStatistics(summary.statistics->absmax);
    }
  }
  if (wanted.rows) {
    // Rows without elements have a digest too.
    if (bytes_ == 0) {
      for (uint64_t i = 0; i < rows_; ++i) rows.FinishRow();
    }
    summary.rows = rows.Release();
  }
  return summary;
}

}  // namespace traincheck::agent
