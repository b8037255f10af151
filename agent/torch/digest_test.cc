#include "agent/torch/digest.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace traincheck {
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

TEST(Digest, TestVectorsStay) {
  EXPECT_EQ(FinishDigest(Sum(""), 0, "torch.float32"),
            FinishDigest(0, 0, "torch.float32"));
  EXPECT_EQ(Sum(std::string(8, '\0')), ReferenceMix(0x9e3779b97f4a7c15));
  const std::string counting = "\x01\x02\x03\x04\x05\x06\x07\x08\x09";
  EXPECT_EQ(Sum(counting),
            ReferenceMix(0x0807060504030201 ^ 0x9e3779b97f4a7c15) +
                ReferenceMix(0x09 ^ (2 * 0x9e3779b97f4a7c15)));
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
  EXPECT_NE(FinishDigest(5, 8, "torch.float32"),
            FinishDigest(5, 16, "torch.float32"));
  EXPECT_NE(FinishDigest(5, 8, "torch.float32"),
            FinishDigest(5, 8, "torch.int32"));
  // Zero padding of the last word does not make two lengths equal.
  EXPECT_EQ(Sum(std::string(4, '\0')), Sum(std::string(8, '\0')));
  EXPECT_NE(FinishDigest(Sum(std::string(4, '\0')), 4, "torch.float32"),
            FinishDigest(Sum(std::string(8, '\0')), 8, "torch.float32"));
}

TEST(Digest, ZeroIsNoticed) {
  EXPECT_EQ(SumWords(std::string(100, '\0').data(), 100).any_bits, 0u);
  std::string bytes(100, '\0');
  bytes[99] = 1;
  EXPECT_NE(SumWords(bytes.data(), 100).any_bits, 0u);
}

}  // namespace
}  // namespace traincheck
