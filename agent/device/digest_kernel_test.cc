// The kernel's source against the digest of the processor, over memory that
// ends where the tensors end: under a sanitizer no read beyond passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "agent/device/digest_tables.h"
#include "agent/device/emulated_kernel_for_testing.h"
#include "base/seed_for_testing.h"

namespace traincheck::agent {
namespace {

constexpr Dtype kDtypes[] = {
    Dtype::kUint8,          Dtype::kInt8,           Dtype::kInt16,
    Dtype::kInt32,          Dtype::kInt64,          Dtype::kFloat16,
    Dtype::kFloat32,        Dtype::kFloat64,        Dtype::kComplex32,
    Dtype::kComplex64,      Dtype::kComplex128,     Dtype::kBool,
    Dtype::kBfloat16,       Dtype::kFloat8E5m2,     Dtype::kFloat8E4m3fn,
    Dtype::kFloat8E5m2fnuz, Dtype::kFloat8E4m3fnuz, Dtype::kUint16,
    Dtype::kUint32,         Dtype::kUint64,         Dtype::kFloat8E8m0fnu,
    Dtype::kFloat4E2m1fnX2,
};

// Random bytes, as many as asked for and no more, `offset` bytes behind an
// aligned address.
class Memory {
 public:
  Memory(size_t bytes, size_t offset, std::mt19937_64& random)
      : begin_(new (std::align_val_t(16)) char[offset + bytes]),
        data_(begin_ + offset) {
    for (size_t i = 0; i < offset + bytes; ++i) {
      begin_[i] = static_cast<char>(random());
    }
  }
  ~Memory() { ::operator delete[](begin_, std::align_val_t(16)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* data() { return data_; }

 private:
  char* const begin_;
  char* const data_;
};

struct Signs {
  bool negative = false;
  bool conjugate = false;
};

// Tensors for one launch.
class Tensors {
 public:
  explicit Tensors(uint64_t seed) : random_(seed) {}

  std::mt19937_64& random() { return random_; }
  const std::vector<StridedContent>& contents() const { return contents_; }

  // Strides in elements.
  void Add(Dtype dtype, const std::vector<int64_t>& sizes,
           const std::vector<int64_t>& strides, size_t offset,
           Signs signs = {}) {
    StridedTensor tensor = {nullptr,        dtype,          Ndim(sizes),
                            sizes.data(),   strides.data(), signs.negative,
                            signs.conjugate};
    const uint64_t extent = StridedContent::Of(tensor)->extent();
    memory_.push_back(std::make_unique<Memory>(extent, offset, random_));
    tensor.data = memory_.back()->data();
    contents_.push_back(*StridedContent::Of(tensor));
  }
  void AddDense(Dtype dtype, int64_t elements, size_t offset) {
    Add(dtype, {elements}, {1}, offset);
  }
  void FillWithZeros(size_t i) {
    std::memset(memory_[i]->data(), 0, contents_[i].extent());
  }
  // REQUIRES: of a dense tensor.
  void SetElement(size_t i, size_t element, uint64_t bits) {
    const size_t bytes = contents_[i].element_bytes();
    std::memcpy(memory_[i]->data() + element * bytes, &bits, bytes);
  }

  // All in one launch of so many blocks, compared with the processor's.
  void ExpectEqual(unsigned blocks) {
    DigestTables tables;
    for (const StridedContent& content : contents_) {
      ASSERT_TRUE(DigestTables::Takes(content));
      tables.Add(content);
    }
    const std::vector<DigestWords> host_sums = Run(tables, blocks, nullptr);
    for (size_t i = 0; i < contents_.size(); ++i) {
      const StridedContent& content = contents_[i];
      const ContentDigest want = content.Digest();
      const ContentDigest found =
          FinishWords(host_sums[i], content.bytes(), content.dtype());
      EXPECT_EQ(found.digest, want.digest)
          << "tensor " << i << " of " << content.bytes() << " bytes of "
          << DtypeName(content.dtype()) << ", " << blocks << " blocks";
      EXPECT_EQ(found.all_zero, want.all_zero) << "tensor " << i;
      const std::optional<bool> finite =
          IsFinite(host_sums[i], content.dtype());
      if (finite) {
        EXPECT_EQ(*finite, IsFiniteHere(content)) << "tensor " << i;
      }
    }
  }

  // The copies of all in one launch have the contents' digests.
  void ExpectCopied(unsigned blocks) {
    DigestTables tables;
    for (const StridedContent& content : contents_) tables.AddCopied(content);
    std::vector<DeviceWord> copies(tables.copied_words());
    Run(tables, blocks, copies.data());
    for (size_t i = 0; i < contents_.size(); ++i) {
      const StridedContent& content = contents_[i];
      const auto elements =
          static_cast<int64_t>(content.bytes() / content.element_bytes());
      const int64_t stride = 1;
      const auto copy = StridedContent::Of(
          {copies.data() + tables.items()[i].copy_at - 1, content.dtype(), 1,
           &elements, &stride, false, false});
      EXPECT_EQ(copy->Digest().digest, content.Digest().digest)
          << "tensor " << i << " of " << content.bytes() << " bytes of "
          << DtypeName(content.dtype());
    }
  }

 private:
  static bool IsFiniteHere(const StridedContent& content) {
    const ContentSummary summary = content.Summarize({.statistics = true});
    return summary.statistics->nan_count == 0 &&
           summary.statistics->inf_count == 0;
  }
  // What the host gets; `copies`: where, null without any.
  static std::vector<DigestWords> Run(const DigestTables& tables,
                                      unsigned blocks, DeviceWord* copies) {
    const auto count = static_cast<unsigned>(tables.items().size());
    std::vector<DigestWords> sums(count, DigestWords{0, 0});
    std::vector<DigestWords> host_sums(count, DigestWords{1, 1});
    DigestProgress progress = {};
    DigestDone done = {};
    RunEmulatedKernel(
        {tables.items().data(), tables.dims().data(), sums.data(), &progress,
         host_sums.data(), copies, &done, 7, count, tables.chunks()},
        blocks, 300);
    EXPECT_EQ(done.launch, 7u);
    EXPECT_EQ(done.device_ns, 300u);
    EXPECT_EQ(progress.begin, 0u);
    // Ready for the next launch.
    for (const DigestWords& left : sums) {
      EXPECT_EQ(left.sum, 0u);
      EXPECT_EQ(left.flags, 0u);
    }
    return host_sums;
  }

  static int32_t Ndim(const std::vector<int64_t>& sizes) {
    return static_cast<int32_t>(sizes.size());
  }

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<StridedContent> contents_;
};

TEST(DigestKernel, EqualsTheProcessorForEveryTypeLengthAndAlignment) {
  Tensors tensors(SeedForTesting(1));
  for (const Dtype dtype : kDtypes) {
    const size_t element = DtypeBytes(dtype);
    for (const int64_t elements : {0, 1, 2, 3, 7, 8, 9, 31, 64, 127, 300}) {
      for (size_t offset = 0; offset < 17; offset += element) {
        tensors.AddDense(dtype, elements, offset);
      }
    }
  }
  tensors.ExpectEqual(3);
}

TEST(DigestKernel, EqualsTheProcessorAroundTheEndsOfChunks) {
  Tensors tensors(SeedForTesting(2));
  constexpr int64_t kChunk = 8 * kChunkWords;
  for (const int64_t around : {kChunk, 2 * kChunk, 5 * kChunk}) {
    for (int64_t bytes = around - 17; bytes <= around + 17; ++bytes) {
      tensors.AddDense(Dtype::kUint8, bytes, static_cast<size_t>(bytes % 17));
    }
  }
  tensors.ExpectEqual(1);
  tensors.ExpectEqual(7);
}

TEST(DigestKernel, TheGridDoesNotMatter) {
  Tensors tensors(SeedForTesting(3));
  for (int i = 0; i < 200; ++i) {
    const bool large = i % 50 == 0;
    tensors.AddDense(
        Dtype::kBfloat16,
        static_cast<int64_t>(tensors.random()() % (large ? 200'000 : 900)),
        2 * (tensors.random()() % 8));
  }
  for (const unsigned blocks : {1u, 2u, 7u, 300u}) tensors.ExpectEqual(blocks);
}

TEST(DigestKernel, EqualsTheProcessorForViews) {
  Tensors tensors(SeedForTesting(4));
  auto& random = tensors.random();
  for (const Dtype dtype : kDtypes) {
    for (int i = 0; i < 40; ++i) {
      std::vector<int64_t> sizes, strides;
      for (size_t d = 0; d < 1 + random() % 4; ++d) {
        sizes.push_back(static_cast<int64_t>(1 + random() % 9));
      }
      // A permutation, with gaps, and now and then expanded.
      std::vector<size_t> order(sizes.size());
      for (size_t d = 0; d < order.size(); ++d) order[d] = d;
      std::shuffle(order.begin(), order.end(), random);
      strides.assign(sizes.size(), 0);
      int64_t stride = 1 + static_cast<int64_t>(random() % 2);
      for (const size_t d : order) {
        if (random() % 8 == 0) continue;
        strides[d] = stride;
        stride *= sizes[d] + static_cast<int64_t>(random() % 2);
      }
      tensors.Add(dtype, sizes, strides, DtypeBytes(dtype) * (random() % 3));
    }
  }
  tensors.ExpectEqual(2);
}

TEST(DigestKernel, EqualsTheProcessorForLazySigns) {
  Tensors tensors(SeedForTesting(5));
  for (const Dtype dtype :
       {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64,
        Dtype::kComplex32, Dtype::kComplex64, Dtype::kComplex128}) {
    for (int64_t n = 0; n < 12; ++n) {
      tensors.Add(dtype, {n}, {1}, 0, {true, false});
      tensors.Add(dtype, {n, 3}, {1, n + 1}, 0, {true, false});
      if (!IsComplex(dtype)) continue;
      tensors.Add(dtype, {n}, {1}, 0, {false, true});
      tensors.Add(dtype, {n, 3}, {4, 1}, 0, {true, true});
    }
  }
  tensors.ExpectEqual(2);
}

TEST(DigestKernel, CopiesElementsInTheirLogicalOrder) {
  Tensors tensors(SeedForTesting(7));
  for (const Dtype dtype : kDtypes) {
    for (const int64_t elements : {0, 1, 7, 8, 300}) {
      tensors.AddDense(dtype, elements, DtypeBytes(dtype));
    }
    tensors.Add(dtype, {7, 5}, {1, 8}, 0);
  }
  tensors.Add(Dtype::kFloat32, {9, 3}, {1, 10}, 0, {true, false});
  tensors.Add(Dtype::kComplex64, {9}, {2}, 0, {false, true});
  tensors.AddDense(Dtype::kFloat32, 3 * 2 * kChunkWords + 1, 0);
  tensors.ExpectCopied(1);
  tensors.ExpectCopied(7);
}

TEST(DigestKernel, LeavesIntegersToBeNegatedToOthers) {
  const int64_t size = 4, stride = 1;
  const auto content = StridedContent::Of(
      {nullptr, Dtype::kInt32, 1, &size, &stride, true, false});
  ASSERT_TRUE(content);
  EXPECT_FALSE(DigestTables::Takes(*content));
}

TEST(DigestKernel, RecognisesZeros) {
  Tensors tensors(SeedForTesting(6));
  for (int i = 0; i < 20; ++i) tensors.AddDense(Dtype::kFloat32, 1000 + i, 4);
  tensors.Add(Dtype::kFloat32, {10, 10}, {1, 10}, 0);
  // -0.0 has a bit set.
  tensors.Add(Dtype::kFloat32, {10}, {1}, 0, {true, false});
  for (size_t i : {3, 7, 20, 21}) tensors.FillWithZeros(i);
  tensors.ExpectEqual(4);
  EXPECT_TRUE(tensors.contents()[20].Digest().all_zero);
  EXPECT_FALSE(tensors.contents()[21].Digest().all_zero);
}

struct Float {
  Dtype dtype;
  uint64_t largest;  // the bits of the largest finite one
  std::vector<uint64_t> not_finite;
};
const Float kFloats[] = {
    {Dtype::kFloat16, 0x7bff, {0x7c00, 0xfc00, 0x7e00, 0x7c01}},
    {Dtype::kBfloat16, 0x7f7f, {0x7f80, 0xff80, 0x7fc0, 0x7f81}},
    {Dtype::kFloat32, 0x7f7fffff, {0x7f800000, 0xff800000, 0x7f800001}},
    {Dtype::kFloat64,
     0x7fefffffffffffff,
     {0x7ff0000000000000, 0xfff0000000000000, 0x7ff0000000000001}},
    {Dtype::kFloat8E5m2, 0x7b, {0x7c, 0xfc, 0x7d, 0x7f}},
    {Dtype::kFloat8E4m3fn, 0x7e, {0x7f, 0xff}},
};

// One element in a tensor, at every place of a word and in its last part.
TEST(DigestKernel, FindsAnElementThatIsNotFinite) {
  for (const Float& one : kFloats) {
    Tensors tensors(SeedForTesting(8));
    std::vector<uint64_t> bits = one.not_finite;
    bits.push_back(one.largest);
    size_t tensor = 0;
    for (const uint64_t value : bits) {
      for (const size_t element : {0, 1, 2, 3, 7, 80}) {
        tensors.AddDense(one.dtype, 81, DtypeBytes(one.dtype) * (tensor % 3));
        tensors.FillWithZeros(tensor);
        tensors.SetElement(tensor++, element, value);
      }
    }
    tensors.ExpectEqual(2);
  }
}

TEST(DigestKernel, KnowsNotOfEachTypeWhetherItIsFinite) {
  const DigestWords finite = {0, kDigestNotZero};
  EXPECT_EQ(IsFinite(finite, Dtype::kFloat32), true);
  EXPECT_EQ(IsFinite({0, kDigestNotFinite}, Dtype::kComplex64), false);
  EXPECT_EQ(IsFinite(finite, Dtype::kInt32), std::nullopt);
  EXPECT_EQ(IsFinite(finite, Dtype::kFloat8E4m3fnuz), std::nullopt);
}

}  // namespace
}  // namespace traincheck::agent
