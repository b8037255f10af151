#include "invariants/trace/archive.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <unordered_map>

namespace traincheck {
namespace {

enum class Colour : uint8_t { kRed, kBlue };

struct Inner {
  uint32_t id = 0;
  std::vector<std::string> names;
  void Fields(Archive& archive) { archive(id, names); }
  bool operator==(const Inner& other) const {
    return id == other.id && names == other.names;
  }
};

struct Everything {
  uint64_t most = 0;
  int64_t least = 0;
  uint8_t small = 0;
  bool flag = false;
  double ratio = 0;
  Colour colour = Colour::kRed;
  std::string text;
  std::optional<int32_t> absent;
  std::optional<int32_t> present;
  std::pair<uint32_t, std::string> both;
  std::tuple<uint32_t, std::string, Inner> all;
  std::vector<Inner> list;
  std::map<std::string, Inner> sorted;
  std::unordered_map<uint32_t, Inner> hashed;
  std::multimap<int, int> many;
  std::set<std::pair<int, std::string>> set;

  void Fields(Archive& archive) {
    archive(most, least, small, flag, ratio, colour, text, absent, present,
            both, all, list, sorted, hashed, many, set);
  }
};

Everything Sample() {
  Everything sample;
  sample.most = std::numeric_limits<uint64_t>::max();
  sample.least = std::numeric_limits<int64_t>::min();
  sample.small = 200;
  sample.flag = true;
  sample.ratio = -0.1;
  sample.colour = Colour::kBlue;
  sample.text = std::string("a\0b", 3);
  sample.present = -5;
  sample.both = {7, "seven"};
  sample.all = {1, "x", {2, {"y"}}};
  sample.list = {{1, {"a", ""}}, {2, {}}};
  sample.sorted = {{"k", {3, {"z"}}}};
  for (uint32_t i = 0; i < 100; ++i) sample.hashed[i * 7919] = {i, {}};
  sample.many = {{1, 2}, {1, 3}, {0, 9}};
  sample.set = {{1, "a"}, {-1, "b"}};
  return sample;
}

std::string Save(Everything value) {
  Archive archive;
  archive(value);
  return archive.TakeBytes();
}

TEST(Archive, GivesBackWhatItTook) {
  const std::string bytes = Save(Sample());
  Archive archive(bytes);
  Everything read;
  read.absent = 1;
  read.list.resize(9);
  archive(read);
  ASSERT_TRUE(archive.ok()) << archive.error();
  EXPECT_TRUE(archive.at_end());
  const Everything sample = Sample();
  EXPECT_EQ(read.most, sample.most);
  EXPECT_EQ(read.least, sample.least);
  EXPECT_EQ(read.small, sample.small);
  EXPECT_EQ(read.flag, sample.flag);
  EXPECT_EQ(read.ratio, sample.ratio);
  EXPECT_EQ(read.colour, sample.colour);
  EXPECT_EQ(read.text, sample.text);
  EXPECT_EQ(read.absent, sample.absent);
  EXPECT_EQ(read.present, sample.present);
  EXPECT_EQ(read.both, sample.both);
  EXPECT_EQ(read.all, sample.all);
  EXPECT_EQ(read.list, sample.list);
  EXPECT_EQ(read.sorted, sample.sorted);
  EXPECT_EQ(read.hashed, sample.hashed);
  EXPECT_EQ(read.many, sample.many);
  EXPECT_EQ(read.set, sample.set);
}

// Hash tables come in any order; what is saved does not.
TEST(Archive, EqualStatesAreEqualBytes) {
  const std::string bytes = Save(Sample());
  Archive archive(bytes);
  Everything read;
  archive(read);
  EXPECT_EQ(Save(std::move(read)), bytes);
}

TEST(Archive, BytesThatAreCutOffAreAnError) {
  const std::string bytes = Save(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Archive archive(std::string_view(bytes).substr(0, size));
    Everything read;
    archive(read);
    EXPECT_FALSE(archive.ok()) << size;
  }
}

TEST(Archive, UntrustedBytesAreReadOrRefused) {
  std::mt19937 random(1);
  const std::string bytes = Save(Sample());
  for (int round = 0; round < 20000; ++round) {
    std::string spoilt = bytes;
    for (int i = 0; i < 3; ++i) {
      spoilt[random() % spoilt.size()] = static_cast<char>(random());
    }
    Archive archive(spoilt);
    Everything read;
    archive(read);
    EXPECT_LE(read.list.size() + read.hashed.size(), bytes.size());
  }
}

TEST(Archive, TablesAreFoundByTheirType) {
  Archive archive;
  EXPECT_EQ(archive.table<std::string>(), nullptr);
  const std::string first = "first";
  const std::string second = "second";
  archive.set_table(&first);
  archive.set_table(&second);
  EXPECT_EQ(archive.table<std::string>(), &second);
  EXPECT_EQ(archive.table<std::vector<int>>(), nullptr);
}

TEST(Archive, AListOfAnyLengthIsNotBelieved) {
  const std::string bytes = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
  Archive archive(bytes);
  std::vector<std::string> list;
  archive(list);
  EXPECT_FALSE(archive.ok());
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(archive.error(), "a list is longer than what is left");
}

}  // namespace
}  // namespace traincheck
