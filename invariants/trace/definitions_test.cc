#include "invariants/trace/definitions.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "proto/record_writer.h"

namespace traincheck {
namespace {

using Variables = std::vector<uint32_t>;

Variables Range(uint32_t from, uint32_t to) {
  Variables range(to - from);
  std::iota(range.begin(), range.end(), from);
  return range;
}

// A definition of optimizer or group 7 with `variables`; a part if `begin` is
// not 0.
class PartsTest : public testing::TestWithParam<RecordType> {
 protected:
  struct Part {
    uint64_t begin;
    Variables variables;
  };

  bool Apply(const Part& part) {
    const std::string bytes = Encode(part);
    RecordReader record(bytes);
    EXPECT_TRUE(record.Next());
    return definitions_.Apply(record);
  }
  bool Knows(const Part& part) {
    const std::string bytes = Encode(part);
    RecordReader record(bytes);
    EXPECT_TRUE(record.Next());
    return definitions_.Knows(record);
  }
  Variables Listed() const {
    if (GetParam() == RecordType::kHoldDef) {
      return definitions_.holds().at({7, 0});
    }
    return definitions_.groups().at(7).variables;
  }
  size_t bytes() const { return definitions_.bytes(); }
  bool empty() const {
    return definitions_.holds().empty() && definitions_.groups().empty();
  }

 private:
  static std::string Encode(const Part& part) {
    alignas(8) static char buffer[kMaxRecordBytes];
    FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 7, 0});
    if (part.begin != 0) out.Unsigned(Field::kPartBegin, part.begin);
    for (uint32_t variable : part.variables) {
      out.Unsigned(Field::kVariable, variable);
    }
    return std::string(buffer, out.Finish(GetParam(), 0, 0));
  }

  ProcessDefinitions definitions_;
};

TEST_P(PartsTest, FollowOnOneAnother) {
  EXPECT_TRUE(Apply({0, Range(1, 5001)}));
  EXPECT_FALSE(Knows({5000, {5001}}));
  EXPECT_TRUE(Apply({5000, Range(5001, 9001)}));
  EXPECT_TRUE(Knows({5000, {5001}}));
  EXPECT_EQ(Listed(), Range(1, 9001));
}

TEST_P(PartsTest, ListWithoutPartReplaces) {
  EXPECT_FALSE(Knows({0, {1}}));
  EXPECT_TRUE(Apply({0, Range(1, 10)}));
  EXPECT_TRUE(Knows({0, {1}}));
  EXPECT_TRUE(Apply({0, {3}}));
  EXPECT_EQ(Listed(), Variables{3});
}

TEST_P(PartsTest, PartThatComesAgainChangesNothing) {
  EXPECT_TRUE(Apply({0, Range(1, 10)}));
  EXPECT_TRUE(Apply({9, {10, 11}}));
  EXPECT_TRUE(Apply({9, {10, 11}}));
  EXPECT_EQ(Listed(), Range(1, 12));
}

TEST_P(PartsTest, PartAfterAGapIsRefused) {
  EXPECT_FALSE(Apply({3, {4}}));
  EXPECT_TRUE(empty());
  EXPECT_TRUE(Knows({3, {4}}));  // nothing to take over early
  EXPECT_TRUE(Apply({0, {1, 2}}));
  EXPECT_FALSE(Apply({3, {4}}));
  EXPECT_EQ(Listed(), (Variables{1, 2}));
}

// Appends `text` to the definitions as string `id`.
void DefineString(uint32_t id, const std::string& text,
                  ProcessDefinitions* definitions) {
  alignas(8) char buffer[2048];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, id, 0});
  out.Bytes(Field::kText, text);
  const std::string bytes(buffer, out.Finish(RecordType::kStringDef, 0, 0));
  RecordReader record(bytes);
  ASSERT_TRUE(record.Next());
  ASSERT_TRUE(definitions->Apply(record));
}

// Of what is called on line `id` of train.py.
void DefineSite(uint32_t id, uint32_t function, uint32_t caller,
                ProcessDefinitions* definitions) {
  alignas(8) char buffer[256];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, id, 0});
  out.Unsigned(Field::kFile, 1);
  out.Unsigned(Field::kLine, id);
  out.Unsigned(Field::kFunctionName, function);
  if (caller != 0) out.Unsigned(Field::kCallerSite, caller);
  const std::string bytes(buffer, out.Finish(RecordType::kSiteDef, 0, 0));
  RecordReader record(bytes);
  ASSERT_TRUE(record.Next());
  ASSERT_TRUE(definitions->Apply(record));
}

TEST(Definitions, CallersOfASite) {
  ProcessDefinitions definitions;
  DefineString(1, "train.py", &definitions);
  DefineString(2, "<module>", &definitions);
  DefineString(3, "fit", &definitions);
  DefineSite(90, 2, 0, &definitions);
  DefineSite(40, 3, 90, &definitions);
  DefineSite(7, 3, 40, &definitions);
  EXPECT_EQ(definitions.CallersOf(7),
            (std::vector<std::string>{"train.py:40 in fit", "train.py:90"}));
  EXPECT_TRUE(definitions.CallersOf(90).empty());
  EXPECT_TRUE(definitions.CallersOf(8).empty());
}

TEST(Definitions, CallersThatComeInACircleOrAreNotDefinedHaveAnEnd) {
  ProcessDefinitions definitions;
  DefineString(1, "train.py", &definitions);
  DefineSite(5, 0, 6, &definitions);
  DefineSite(6, 0, 5, &definitions);
  EXPECT_EQ(definitions.CallersOf(5).size(), 8u);
  DefineSite(7, 0, 99, &definitions);
  EXPECT_TRUE(definitions.CallersOf(7).empty());
}

TEST(Definitions, ProcessGroup) {
  ProcessDefinitions definitions;
  DefineString(1, "7", &definitions);
  DefineString(2, "gloo", &definitions);
  DefineString(3, "dp", &definitions);
  alignas(8) char buffer[256];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 5, 0});
  out.Unsigned(Field::kName, 1);
  out.Unsigned(Field::kBackend, 2);
  out.Unsigned(Field::kMesh, 1);
  out.Unsigned(Field::kMeshDimension, 0);
  out.Unsigned(Field::kMeshName, 3);
  for (uint64_t rank : {3, 1}) out.Unsigned(Field::kMemberRank, rank);
  const std::string bytes(buffer,
                          out.Finish(RecordType::kProcessGroupDef, 0, 0));
  RecordReader record(bytes);
  ASSERT_TRUE(record.Next());
  EXPECT_FALSE(definitions.Knows(record));
  ASSERT_TRUE(definitions.Apply(record));
  EXPECT_TRUE(definitions.Knows(record));
  const ProcessGroupInfo& group = definitions.process_groups().at(5);
  EXPECT_EQ(group.name, "7");
  EXPECT_EQ(group.backend, "gloo");
  EXPECT_EQ(group.ranks, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(group.mesh, 1u);
  EXPECT_EQ(group.mesh_name, "dp");
}

// A few bytes for each role, all of which are one long text.
bool DefineLargeFunction(uint32_t id, ProcessDefinitions* definitions) {
  alignas(8) static char buffer[kMaxRecordBytes];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, id, 0});
  for (int i = 0; i < 10'000; ++i) out.Unsigned(Field::kRole, 1);
  const std::string bytes(buffer, out.Finish(RecordType::kFunctionDef, 0, 0));
  RecordReader record(bytes);
  EXPECT_TRUE(record.Next());
  return definitions->Apply(record);
}

TEST(Definitions, TheirTableHasAnEnd) {
  ProcessDefinitions definitions;
  DefineString(1, std::string(kMaxStringBytes, 'x'), &definitions);
  // Each replaces the one before and takes its place.
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(DefineLargeFunction(7, &definitions));
  }
  EXPECT_FALSE(definitions.full());
  uint32_t last = 8;
  while (last < 100 && DefineLargeFunction(last, &definitions)) ++last;
  EXPECT_TRUE(definitions.full());
  // Of 10 MB each.
  EXPECT_EQ(definitions.functions().size(), 14u);
  EXPECT_EQ(definitions.Function(last), nullptr);
  // Also when the check goes on after a restart.
  Archive saved;
  saved(definitions);
  const std::string bytes = saved.TakeBytes();
  Archive archive(bytes);
  ProcessDefinitions restored;
  archive(restored);
  EXPECT_TRUE(archive.ok());
  EXPECT_EQ(restored.bytes(), definitions.bytes());
  EXPECT_FALSE(DefineLargeFunction(200, &restored));
}

TEST_P(PartsTest, AListThatIsDefinedAgainTakesItsPlaceOnce) {
  const auto define = [this] {
    EXPECT_TRUE(Apply({0, Range(1, 5'001)}));
    EXPECT_TRUE(Apply({5'000, Range(5'001, 9'001)}));
    return bytes();
  };
  const size_t bytes = define();
  EXPECT_GT(bytes, 9'000u);
  EXPECT_EQ(define(), bytes);
}

INSTANTIATE_TEST_SUITE_P(Lists, PartsTest,
                         testing::Values(RecordType::kHoldDef,
                                         RecordType::kReplicaGroupDef));

}  // namespace
}  // namespace traincheck
