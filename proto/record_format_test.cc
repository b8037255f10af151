#include "proto/record_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "proto/record_reader.h"
#include "proto/record_writer.h"

namespace traincheck {
namespace {

// A buffer that records are appended to, as a ring would hold them.
class Stream {
 public:
  template <typename Fixed, typename Fill>
  void Append(RecordType type, uint8_t flags, const Fixed& fixed, Fill fill) {
    alignas(8) char buffer[4096];
    FieldWriter out(buffer, sizeof buffer, fixed);
    fill(out);
    const size_t size = out.Finish(type, flags, 5);
    ASSERT_NE(size, 0u);
    bytes_.append(buffer, size);
  }
  template <typename Fixed>
  void Append(RecordType type, const Fixed& fixed) {
    Append(type, 0, fixed, [](FieldWriter&) {});
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string FromHex(const std::string& text) {
  std::istringstream in(text);
  std::string bytes;
  for (std::string byte; in >> byte;) {
    bytes.push_back(static_cast<char>(std::stoi(byte, nullptr, 16)));
  }
  return bytes;
}

std::string Trim(const std::string& text) {
  const size_t from = text.find_first_not_of(' ');
  const size_t to = text.find_last_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

TEST(RecordFormat, CallBeginRoundTripsWithItsFields) {
  Stream stream;
  stream.Append(RecordType::kCallBegin, kRootModuleCall | kForeignParent,
                CallBeginRecord{{}, 7, 3, 41, 2}, [](FieldWriter& out) {
                  out.Unsigned(Field::kSelfObject, 300);
                  out.Signed(Field::kValueSigned, -9);
                  out.Double(Field::kValueDouble, 0.1);
                  out.Bytes(Field::kText, "conv1");
                });
  RecordReader records(stream.bytes());
  ASSERT_TRUE(records.Next());
  EXPECT_EQ(records.type(), RecordType::kCallBegin);
  EXPECT_EQ(records.header().flags, kRootModuleCall | kForeignParent);
  EXPECT_EQ(records.header().delta_us, 5u);
  const auto& call = records.Get<CallBeginRecord>();
  EXPECT_EQ(call.function, 7u);
  EXPECT_EQ(call.site, 3u);
  EXPECT_EQ(call.call, 41u);
  EXPECT_EQ(call.parent_distance, 2u);
  FieldReader fields = records.Fields();
  ASSERT_TRUE(fields.Next());
  EXPECT_EQ(fields.field(), Field::kSelfObject);
  EXPECT_EQ(fields.unsigned_value(), 300u);
  ASSERT_TRUE(fields.Next());
  EXPECT_EQ(fields.signed_value(), -9);
  ASSERT_TRUE(fields.Next());
  EXPECT_EQ(fields.double_value(), 0.1);
  ASSERT_TRUE(fields.Next());
  EXPECT_EQ(fields.bytes_value(), "conv1");
  EXPECT_FALSE(fields.Next());
  EXPECT_TRUE(fields.ok());
  EXPECT_FALSE(records.Next());
  EXPECT_TRUE(records.ok()) << records.error();
}

// The example of RECORD_FORMAT.md, byte for byte.
TEST(RecordFormat, DocumentedExampleIsWhatTheWriterWrites) {
  Stream stream;
  stream.Append(RecordType::kCallBegin, kRootModuleCall | kGradEnabled,
                CallBeginRecord{{}, 7, 3, 41, 2}, [](FieldWriter& out) {
                  out.Unsigned(Field::kSelfObject, 300);
                });
  EXPECT_EQ(stream.bytes(), FromHex("20 00 03 0a 05 00 00 00 "
                                    "07 00 00 00 03 00 00 00 "
                                    "29 00 00 00 02 00 00 00 "
                                    "04 ac 02 00 00 00 00 00"));
}

TEST(RecordFormat, StateCarriesADigestForEachBit) {
  for (uint8_t content : {1, 2, 3}) {
    struct {
      StateRecord fixed;
      uint64_t digests[2];
    } state = {{{}, 9, static_cast<uint8_t>(StatePoint::kPreStep), content, 0},
               {111, 222}};
    Stream stream;
    stream.Append(RecordType::kState, state);
    RecordReader records(stream.bytes());
    ASSERT_TRUE(records.Next()) << records.error();
    if (content & kHasData) {
      EXPECT_EQ(records.data_digest(), 111u);
    }
    if (content & kHasGrad) {
      EXPECT_EQ(records.grad_digest(), content & kHasData ? 222u : 111u);
    }
    EXPECT_FALSE(records.Fields().Next());
  }
}

TEST(RecordFormat, EveryTypeRoundTripsInOneStream) {
  Stream stream;
  stream.Append(RecordType::kClockSync, ClockSyncRecord{{}, 1, 2, 3});
  stream.Append(RecordType::kCallBegin, CallBeginRecord{{}, 1, 2, 3, 0});
  stream.Append(RecordType::kCallEnd, CallEndRecord{{}, 3, 1});
  stream.Append(RecordType::kCallRaised, CallEndRecord{{}, 3, 1});
  stream.Append(RecordType::kState, StateRecord{{}, 1, 8, kGradIsNone, 0});
  stream.Append(RecordType::kScalar, ScalarRecord{{}, 1, 7, 0, 0, 4, 0, 0.5});
  stream.Append(RecordType::kContextEnter, ContextRecord{{}, 1, 2});
  stream.Append(RecordType::kContextExit, ContextRecord{{}, 1, 2});
  stream.Append(RecordType::kMark, MarkRecord{{}, 1, 2, 3});
  stream.Append(RecordType::kPlace, PlaceRecord{{}, 1, 2, -1, 2});
  stream.Append(RecordType::kDrops, DropsRecord{{}, 77});
  stream.Append(RecordType::kCheckpointEntry,
                CheckpointEntryRecord{{}, 4, 11, kHasData, 0, 99});
  stream.Append(RecordType::kStatistics,
                StatisticsRecord{{}, 1, 7, kHasGrad, 0, 2.5, 1.5, 1, 0});
  stream.Append(RecordType::kRowDigests,
                RowDigestsRecord{{}, 1, 7, kHasData, 0, 2048, 2048});
  stream.Append(RecordType::kDeferredDigests, DeferredDigestsRecord{{}, 7});
  stream.Append(RecordType::kPadding, RecordHeader{});
  for (uint8_t type = 32; type <= 39; ++type) {
    stream.Append(static_cast<RecordType>(type), DefinitionRecord{{}, 5, 0});
  }
  RecordReader records(stream.bytes());
  size_t count = 0;
  for (; records.Next(); ++count) EXPECT_TRUE(records.known());
  EXPECT_TRUE(records.ok()) << records.error();
  EXPECT_EQ(count, 24u);
}

TEST(RecordFormat, ADeferredStateNamesItsDigests) {
  struct {
    StateRecord fixed;
    uint64_t words[2];
  } state = {{{}, 9, 7, kHasData | kUnreadable, kHasGrad}, {111, 5}};
  struct {
    DeferredDigestsRecord fixed;
    DeferredDigest digests[2];
  } came = {{{}, 5}, {{222, 0}, {333, kDeferredIsZero}}};
  Stream stream;
  stream.Append(RecordType::kState, state);
  stream.Append(RecordType::kDeferredDigests, came);
  RecordReader records(stream.bytes());
  ASSERT_TRUE(records.Next());
  ASSERT_TRUE(IsDeferred(records.Get<StateRecord>()));
  EXPECT_EQ(records.data_digest(), 111u);
  EXPECT_EQ(records.deferred_number(), 5u);
  ASSERT_TRUE(records.Next());
  EXPECT_EQ(records.Get<DeferredDigestsRecord>().first, 5u);
  const std::vector<DeferredDigest> digests = records.deferred_digests();
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_EQ(digests[0].digest, 222u);
  EXPECT_EQ(digests[1].digest, 333u);
  EXPECT_EQ(digests[1].flags, kDeferredIsZero);
  EXPECT_FALSE(records.Fields().Next());
}

TEST(RecordFormat, UnknownTypesAndFieldsAreSkipped) {
  Stream stream;
  stream.Append(static_cast<RecordType>(200), RecordHeader{});
  stream.Append(RecordType::kStringDef, 0, DefinitionRecord{{}, 1, 0},
                [](FieldWriter& out) {
                  out.Bytes(static_cast<Field>(900), "from the future");
                  out.Bytes(Field::kText, "now");
                });
  RecordReader records(stream.bytes());
  ASSERT_TRUE(records.Next());
  EXPECT_FALSE(records.known());
  EXPECT_FALSE(records.Fields().Next());
  ASSERT_TRUE(records.Next());
  FieldReader fields = records.Fields();
  ASSERT_TRUE(fields.Next());
  ASSERT_TRUE(fields.Next());
  EXPECT_EQ(fields.bytes_value(), "now");
}

TEST(RecordFormat, WriterReportsWhatDoesNotFit) {
  alignas(8) char buffer[32];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
  out.Bytes(Field::kText, std::string(40, 'x'));
  EXPECT_EQ(out.Finish(RecordType::kStringDef, 0, 0), 0u);
}

TEST(RecordFormat, WriterCutsLongStrings) {
  alignas(8) char buffer[4096];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
  out.Bytes(Field::kText, std::string(3000, 'x'));
  const size_t size = out.Finish(RecordType::kStringDef, 0, 0);
  RecordReader records(std::string_view(buffer, size));
  ASSERT_TRUE(records.Next());
  FieldReader fields = records.Fields();
  ASSERT_TRUE(fields.Next());
  EXPECT_EQ(fields.bytes_value().size(), kMaxStringBytes);
}

TEST(RecordFormat, VarintsOfAllSizesRoundTrip) {
  for (int bit = 0; bit < 64; ++bit) {
    const uint64_t value = (uint64_t{1} << bit) + static_cast<uint64_t>(bit);
    Stream stream;
    stream.Append(RecordType::kStringDef, 0, DefinitionRecord{{}, 1, 0},
                  [&](FieldWriter& out) {
                    out.Unsigned(Field::kLine, value);
                    out.Signed(Field::kValueSigned,
                               -static_cast<int64_t>(value / 2));
                  });
    RecordReader records(stream.bytes());
    ASSERT_TRUE(records.Next());
    FieldReader fields = records.Fields();
    ASSERT_TRUE(fields.Next());
    EXPECT_EQ(fields.unsigned_value(), value);
    ASSERT_TRUE(fields.Next());
    EXPECT_EQ(fields.signed_value(), -static_cast<int64_t>(value / 2));
  }
}

TEST(RecordFormat, MalformedFieldsAreReported) {
  const std::vector<std::string> tails = {
      "93 02 ff ff ff ff ff ff ff",  // bytes: length runs off the end
      "83 02 7f 00 00 00 00 00",     // bytes: length beyond the record
      "84 ff ff ff ff ff ff ff",     // tag of endless varint
      "22 00 00 00 00 00 00 00",     // double cut short
  };
  for (const std::string& tail : tails) {
    std::string bytes =
        FromHex("00 00 20 00 00 00 00 00 01 00 00 00 00 00 00 00");
    bytes += FromHex(tail).substr(0, 8);
    bytes[0] = static_cast<char>(bytes.size());
    RecordReader records(bytes);
    ASSERT_TRUE(records.Next()) << records.error();
    FieldReader fields = records.Fields();
    while (fields.Next()) {
    }
    EXPECT_FALSE(fields.ok()) << tail;
  }
}

TEST(RecordFormat, EveryMalformedStreamOfTheCorpusIsRefusedWithItsReason) {
  std::ifstream corpus("proto/testdata/malformed.txt");
  ASSERT_TRUE(corpus.is_open());
  int cases = 0;
  for (std::string line; std::getline(corpus, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream parts(line);
    std::string name, hex, error;
    std::getline(parts, name, '|');
    std::getline(parts, hex, '|');
    std::getline(parts, error);
    const std::string bytes = FromHex(hex);
    RecordReader records(bytes);
    while (records.Next()) {
    }
    EXPECT_FALSE(records.ok()) << name;
    EXPECT_NE(records.error().find(Trim(error)), std::string::npos)
        << name << ": " << records.error();
    ++cases;
  }
  EXPECT_GE(cases, 15);
}

// Random damage must never make the reader leave its bytes (sanitizers and
// the page after a std::string's buffer would tell) nor loop.
TEST(RecordFormat, RandomDamageIsSurvived) {
  Stream stream;
  for (uint32_t i = 1; i < 40; ++i) {
    stream.Append(RecordType::kCallBegin, 0, CallBeginRecord{{}, i, i, i, 0},
                  [&](FieldWriter& out) {
                    out.Unsigned(Field::kSelfObject, i);
                    out.Bytes(Field::kText, "abc");
                  });
    stream.Append(RecordType::kState, StateRecord{{}, i, 8, kGradIsNone, 0});
  }
  std::mt19937_64 random(20240607);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes =
        stream.bytes().substr(0, random() % stream.bytes().size());
    for (int hits = 0; hits < 3 && !bytes.empty(); ++hits) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    RecordReader records(bytes);
    size_t total = 0;
    while (records.Next()) {
      total += records.bytes().size();
      FieldReader fields = records.Fields();
      while (fields.Next()) total += fields.bytes_value().size() & 1;
    }
    ASSERT_LE(total, 2 * bytes.size());
  }
}

}  // namespace
}  // namespace traincheck
