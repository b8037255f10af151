// The tensors of one launch, as the tables that the kernel reads.
//
// Threads: one object, one thread at a time. Kept and used again, it allocates
// only where a launch has more tensors than any before.
#ifndef TRAINCHECK_AGENT_DEVICE_DIGEST_TABLES_H_
#define TRAINCHECK_AGENT_DEVICE_DIGEST_TABLES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/device/digest_layout.h"
#include "agent/torch/content.h"
#include "agent/torch/digest.h"

namespace traincheck::agent {

class DigestTables {
 public:
  // Can the kernel digest it? Not integers that are to be negated when read.
  static bool Takes(const StridedContent& content);

  void Clear();
  // REQUIRES: Takes(content); at most kMaxChunks chunks in all.
  void Add(const StridedContent& content);
  // The same, and its elements go to the host. REQUIRES: at most kMaxCopied
  // bytes in all, where each content is rounded up to words.
  void AddCopied(const StridedContent& content);
  static constexpr uint64_t kMaxCopied = uint64_t{1} << 20;
  // How many chunks a content has. (At most 2^31 a launch: 32 TiB.)
  static DeviceWord ChunksOf(const StridedContent& content);
  static constexpr DeviceWord kMaxChunks = DeviceWord{1} << 31;

  const std::vector<DigestItem>& items() const { return items_; }
  const std::vector<DigestDim>& dims() const { return dims_; }
  unsigned chunks() const { return chunks_; }
  unsigned copied_words() const { return copied_words_; }

 private:
  void Add(const StridedContent& content, bool is_copied);

  std::vector<DigestItem> items_;
  std::vector<DigestDim> dims_;
  unsigned chunks_ = 0;
  unsigned copied_words_ = 0;
};

// What the kernel found of a content, as the processor's digest.
ContentDigest FinishWords(const DigestWords& words, uint64_t bytes,
                          Dtype dtype);
// Has the content neither NaN nor infinity? Nullopt: the kernel cannot tell, as
// of integers.
std::optional<bool> IsFinite(const DigestWords& words, Dtype dtype);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_DIGEST_TABLES_H_
