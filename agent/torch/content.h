// The content of a strided tensor in this process's memory: its elements in
// logical (row-major) order, whatever their order in memory, negated and
// conjugated where the tensor says so. A view and its contiguous copy have the
// same content.
//
// Threads: any; the memory is read without synchronisation.
#ifndef TRAINCHECK_AGENT_TORCH_CONTENT_H_
#define TRAINCHECK_AGENT_TORCH_CONTENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/torch/statistics.h"
#include "proto/torch_types.h"

namespace traincheck::agent {

struct ContentDigest {
  uint64_t digest = 0;
  bool all_zero = false;  // also of a tensor without elements
};

// Everything that one pass can tell.
struct ContentSummary {
  ContentDigest content;
  // Of floating-point and complex elements, if wanted.
  std::optional<TensorStatistics> statistics;
  // If wanted: the digest of each slice of the first dimension, as if it were
  // a tensor of its own. A tensor without dimensions is one row.
  std::vector<uint64_t> rows;
};

struct ContentWanted {
  bool statistics = false;
  bool rows = false;
};

// Some words of a content, to tell cheaply that it has changed.
struct ContentSample {
  uint64_t hash = 0;
  bool is_dense = false;  // most of them are not zero
};

// What is known of a tensor's place in memory.
struct StridedTensor {
  const void* data = nullptr;
  Dtype dtype = Dtype::kUnknown;
  int32_t ndim = 0;
  const int64_t* sizes = nullptr;
  const int64_t* strides = nullptr;  // in elements, never negative
  bool negative = false;
  bool conjugate = false;
};

class StridedContent {
 public:
  struct Dimension {
    int64_t size;
    int64_t stride_bytes;
  };

  // None: an element type without known size, sizes or strides that cannot be,
  // elements that cannot be negated. The arrays are not kept.
  static std::optional<StridedContent> Of(const StridedTensor& tensor);

  uint64_t bytes() const { return bytes_; }  // of the elements
  uint64_t rows() const { return rows_; }    // slices of the first dimension
  // Bytes from the first element's begin to the last one's end in memory.
  uint64_t extent() const { return extent_; }

  // Where the elements lie, for whoever reads them elsewhere: this process may
  // have no access to the memory itself.
  const void* data() const { return data_; }
  Dtype dtype() const { return dtype_; }
  uint64_t element_bytes() const { return element_bytes_; }
  bool negative() const { return negative_; }
  bool conjugate() const { return conjugate_; }
  // Outermost first, merged where dense; none: one block of memory.
  const std::vector<Dimension>& dimensions() const { return dimensions_; }

  // REQUIRES: this process can read the memory.
  ContentDigest Digest() const;
  ContentSummary Summarize(ContentWanted wanted) const;
  // Of words spread evenly. None: the content is no block of memory, or a
  // short one.
  std::optional<ContentSample> Sample() const;

 private:
  bool IsBlock() const {
    return dimensions_.empty() && !negative_ && !conjugate_;
  }
  bool TakeDimensions(const StridedTensor& tensor);
  template <typename Take>
  void ForEachBlock(const Take& take) const;
  template <typename Take>
  void GatherBlocks(const Take& take) const;
  TensorStatistics ScaledStatistics(double scale) const;

  const char* data_ = nullptr;
  Dtype dtype_ = Dtype::kUnknown;
  bool negative_ = false;
  bool conjugate_ = false;
  uint64_t element_bytes_ = 0;
  uint64_t bytes_ = 0;
  uint64_t extent_ = 0;
  uint64_t rows_ = 1;
  std::vector<Dimension> dimensions_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_CONTENT_H_
