#include "agent/torch/digest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace traincheck::agent {
namespace {

// The definition in the header, word by word.
uint64_t ReferenceMix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93;
  x ^= x >> 32;
  x *= 0xc2b2ae3d27d4eb4f;
  return x ^ (x >> 32);
}

uint64_t ReferenceSum(const std::string& bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; 8 * i < bytes.size(); ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + 8 * i,
                std::min<size_t>(8, bytes.size() - 8 * i));
    sum += ReferenceMix(word ^ (i + 1) * 0x9e3779b97f4a7c15);
  }
  return sum;
}

std::string RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

uint64_t Sum(const std::string& bytes) {
  return SumWords(bytes.data(), bytes.size()).sum;
}

TEST(Digest, EqualsItsDefinitionForAllLengthsAndAlignments) {
  const std::string bytes = RandomBytes(4200, 1);
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t size : {0, 1, 7, 8, 9, 63, 64, 65, 511, 4096, 4100}) {
      EXPECT_EQ(SumWords(bytes.data() + offset, size).sum,
                ReferenceSum(bytes.substr(offset, size)))
          << size << " bytes from " << offset;
    }
  }
}

// docs/digest.md.
TEST(Digest, TestVectorsStay) {
  struct Vector {
    Dtype dtype;
    const char* bytes;  // hexadecimal
    uint64_t digest;
  };
  const Vector vectors[] = {
      {Dtype::kFloat32, "", 0x06a24f1250d0a321},
      {Dtype::kFloat32, "00000000", 0xc27902e69f7ef249},
      {Dtype::kFloat32, "0000000000000000", 0x0039605cec6b4cfc},
      {Dtype::kFloat32, "0000803f00000040", 0xb1ebe42ea59d39d8},
      {Dtype::kFloat32, "0000803f0000004000004040", 0x093b3b0d8c0c8af4},
      {Dtype::kInt64, "01000000000000000200000000000000", 0x1ae0c5ad0bf5a1d6},
      {Dtype::kFloat64, "000000000000f03f0000000000000040", 0xa811cb01a2df8a24},
      {Dtype::kBfloat16, "803f004040408040a040", 0xc3ea780e18780824},
      {Dtype::kFloat16, "003c0040004200440045", 0xd975626730593749},
      {Dtype::kFloat8E4m3fn, "38404448", 0xebf4f1c75dd04457},
      {Dtype::kBool, "010001", 0x82d9617ccf3b38ac},
      {Dtype::kComplex64, "0000803f000000400000404000008040",
       0x9d4946d13f7f6046},
      {Dtype::kUint8, "010203040506070809", 0x9ef4cc146fa295d7},
  };
  for (const Vector& vector : vectors) {
    std::string bytes;
    const std::string text = vector.bytes;
    for (size_t i = 0; i < text.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    EXPECT_EQ(FinishDigest(Sum(bytes), bytes.size(), vector.dtype),
              vector.digest)
        << DtypeName(vector.dtype) << " " << text;
    EXPECT_EQ(Sum(bytes), ReferenceSum(bytes));
  }
}

TEST(Digest, AllVectorSetsGiveTheSame) {
  const std::string bytes = RandomBytes(5000, 6);
  for (VectorSet set :
       {VectorSet::kNone, VectorSet::kAvx2, VectorSet::kAvx512}) {
    if (set > BestVectorSet()) continue;
    for (size_t words : {0, 1, 3, 7, 8, 9, 31, 32, 33, 40, 63, 100, 600}) {
      for (uint64_t first : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40}) {
        const char* from = bytes.data() + words % 5;
        const DigestSum want =
            SumWholeWordsWith(VectorSet::kNone, from, words, first);
        const DigestSum sum = SumWholeWordsWith(set, from, words, first);
        EXPECT_EQ(sum.sum, want.sum) << words;
        EXPECT_EQ(sum.any_bits, want.any_bits) << words;
      }
    }
  }
}

TEST(Digest, ShardsOnWordBoundariesAddUp) {
  const std::string bytes = RandomBytes(100000, 2);
  DigestSum total;
  const size_t shard = 777 * 8;
  for (size_t at = 0; at < bytes.size(); at += shard) {
    total +=
        SumWords(bytes.data() + at, std::min(shard, bytes.size() - at), at / 8);
  }
  EXPECT_EQ(total.sum, Sum(bytes));
}

TEST(Digest, EverySingleBitFlipIsSeen) {
  for (uint64_t seed = 0; seed < 2; ++seed) {
    std::string bytes =
        seed == 0 ? std::string(1024, '\0') : RandomBytes(1024, 3);
    std::set<uint64_t> seen = {Sum(bytes)};
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
      EXPECT_TRUE(seen.insert(Sum(bytes)).second) << "bit " << bit;
      bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    }
  }
}

TEST(Digest, SwappedWordsAndRowsAreSeen) {
  const std::string bytes = RandomBytes(8192, 4);
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string other = bytes;
    const size_t a = random() % 1024, b = random() % 1024;
    if (a == b) continue;
    std::swap_ranges(other.begin() + 8 * a, other.begin() + 8 * a + 8,
                     other.begin() + 8 * b);
    EXPECT_NE(Sum(other), Sum(bytes));
  }
}

TEST(Digest, LengthAndTypeAreInTheDigest) {
  EXPECT_NE(FinishDigest(5, 8, Dtype::kFloat32),
            FinishDigest(5, 16, Dtype::kFloat32));
  EXPECT_NE(FinishDigest(5, 8, Dtype::kFloat32),
            FinishDigest(5, 8, Dtype::kInt32));
  // Zero padding of the last word does not make two lengths equal.
  EXPECT_EQ(Sum(std::string(4, '\0')), Sum(std::string(8, '\0')));
  EXPECT_NE(FinishDigest(Sum(std::string(4, '\0')), 4, Dtype::kFloat32),
            FinishDigest(Sum(std::string(8, '\0')), 8, Dtype::kFloat32));
}

TEST(Digest, ZeroIsNoticed) {
  EXPECT_EQ(SumWords(std::string(100, '\0').data(), 100).any_bits, 0u);
  std::string bytes(100, '\0');
  bytes[99] = 1;
  EXPECT_NE(SumWords(bytes.data(), 100).any_bits, 0u);
}

TEST(DigestTest, ZerosAreRecognised) {
  for (const size_t bytes : {0, 1, 4, 8, 20, 4096}) {
    const std::string zeros(bytes, '\0');
    const DigestSum sum = SumWords(zeros.data(), bytes);
    EXPECT_EQ(DigestOfZeros(bytes, Dtype::kFloat32),
              FinishDigest(sum.sum, bytes, Dtype::kFloat32))
        << bytes;
  }
}

}  // namespace
}  // namespace traincheck::agent
