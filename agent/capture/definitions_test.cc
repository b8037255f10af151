#include "agent/capture/definitions.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "proto/record_format.h"
#include "proto/record_reader.h"

namespace {
int64_t g_passed_s = 0;
}  // namespace

// In place of libc's: time passes when the test says so.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  now->tv_sec += g_passed_s;
  return static_cast<int>(result);
}

namespace traincheck::agent {
namespace {

struct Defined {
  uint8_t type;
  uint32_t delta_us;
  uint32_t id;
  std::map<Field, std::vector<std::string>> fields;  // numbers as decimals
};

class DefinitionsTest : public testing::Test {
 protected:
  // Everything in ring 0; its space is free again afterwards.
  std::vector<Defined> Take() {
    const RingHandover handover = definitions_.ring().handover();
    const size_t bytes = kRingHeaderBytes + handover.capacity_bytes;
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                         definitions_.ring().fd(), 0);
    auto* header = static_cast<RingHeader*>(address);
    const char* data = static_cast<char*>(address) + kRingHeaderBytes;
    std::string copy;
    for (uint64_t at = header->tail.load(); at < header->head.load(); at += 8) {
      copy.append(data + at % kCapacity, 8);
    }
    header->tail.store(header->head.load());
    munmap(address, bytes);
    return Decode(copy);
  }

  static std::vector<Defined> Decode(const std::string& bytes) {
    std::vector<Defined> all;
    RecordReader records(bytes);
    while (records.Next()) {
      if (records.type() == RecordType::kPadding) continue;
      Defined defined = {records.header().type,
                         records.header().delta_us,
                         records.Get<DefinitionRecord>().id,
                         {}};
      FieldReader fields = records.Fields();
      while (fields.Next()) {
        defined.fields[fields.field()].push_back(
            fields.kind() == FieldKind::kBytes
                ? std::string(fields.bytes_value())
                : std::to_string(fields.unsigned_value()));
      }
      EXPECT_TRUE(fields.ok());
      all.push_back(defined);
    }
    EXPECT_TRUE(records.ok()) << records.error();
    return all;
  }

  // Until there is no room; returns the name that found none.
  std::string Fill() {
    for (int i = 0;; ++i) {
      const std::string name = "name " + std::to_string(i);
      if (definitions_.String(name) == 0) return name;
    }
  }

  static constexpr uint64_t kCapacity = 4096;
  Definitions definitions_{RingWriter::Create(kDefinitionRing, kCapacity)};
};

// A process may define nothing for longer than a difference has room for.
TEST_F(DefinitionsTest, TimeThatDoesNotFitIsTheLongest) {
  g_passed_s += 10;
  definitions_.String("lr");
  g_passed_s += int64_t{72} * 60;
  definitions_.String("momentum");
  definitions_.String("decay");
  const std::vector<Defined> all = Take();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_GE(all[0].delta_us, 10'000'000u);
  EXPECT_LT(all[0].delta_us, UINT32_MAX);
  EXPECT_EQ(all[1].delta_us, UINT32_MAX);
  EXPECT_LT(all[2].delta_us, UINT32_MAX);
}

TEST_F(DefinitionsTest, NamesOfValuesAreBounded) {
  const uint32_t first = definitions_.ValueName("name");
  EXPECT_NE(first, 0u);
  for (uint32_t i = 1; i < kMaxValueNames; ++i) {
    ASSERT_NE(definitions_.ValueName("name " + std::to_string(i)), 0u) << i;
    if (i % 50 == 0) Take();
  }
  EXPECT_EQ(definitions_.ValueName("one more"), 0u);
  EXPECT_EQ(definitions_.ValueName("name"), first);
  // Those that something else has defined count for nothing.
  const uint32_t other = definitions_.String("other");
  EXPECT_NE(other, 0u);
  EXPECT_EQ(definitions_.ValueName("other"), other);
}

TEST_F(DefinitionsTest, StringsAreDefinedOnce) {
  const uint32_t first = definitions_.String("lr");
  EXPECT_EQ(definitions_.String("lr"), first);
  EXPECT_NE(definitions_.String("momentum"), first);
  const std::vector<Defined> all = Take();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].id, first);
  EXPECT_EQ(all[0].fields.at(Field::kText)[0], "lr");
}

TEST_F(DefinitionsTest, StringsOfAFunctionPrecedeIt) {
  const uint32_t id = definitions_.Function(
      {.name = "torch.optim.adam.Adam.step",
       .category = "optimizer_step",
       .roles = {"torch.optim.optimizer.Optimizer.step", "a.B.step"},
       .parameters = {}});
  const std::vector<Defined> all = Take();
  ASSERT_EQ(all.size(), 5u);
  const Defined& function = all.back();
  EXPECT_EQ(function.type, static_cast<uint8_t>(RecordType::kFunctionDef));
  EXPECT_EQ(function.id, id);
  EXPECT_EQ(function.fields.at(Field::kName)[0], std::to_string(all[0].id));
  EXPECT_EQ(function.fields.at(Field::kRole).size(), 2u);
}

TEST_F(DefinitionsTest, SitesAreDefinedOnce) {
  const auto first = definitions_.Site("train.py", 7, "main", 0);
  EXPECT_EQ(definitions_.Site("train.py", 7, "main", 0), first);
  EXPECT_NE(definitions_.Site("train.py", 8, "main", 0), first);
  EXPECT_NE(definitions_.Site("train.py", 7, "other", 0), first);
  EXPECT_EQ(definitions_.sites(), 3u);
  EXPECT_EQ(Take().size(), 3u + 3u);
}

TEST_F(DefinitionsTest, ASiteKeepsTheCallerThatCameFirst) {
  const uint32_t caller = *definitions_.Site("train.py", 90, "main", 0);
  const auto site = definitions_.Site("train.py", 7, "fit", caller);
  EXPECT_EQ(definitions_.Site("train.py", 7, "fit", 0), site);
  EXPECT_EQ(definitions_.Site("train.py", 7, "fit", 5), site);
  const auto all = Take();
  EXPECT_EQ(all.back().fields.at(Field::kCallerSite)[0],
            std::to_string(caller));
}

TEST_F(DefinitionsTest, SitesHaveAnEnd) {
  for (uint32_t line = 1; line <= kMaxSites + 10; ++line) {
    std::optional<uint32_t> site =
        definitions_.Site("train.py", line, "main", 0);
    if (!site) {
      Take();
      definitions_.Retry();
      site = definitions_.Site("train.py", line, "main", 0);
    }
    ASSERT_EQ(site, line <= kMaxSites ? line : 0);
  }
  EXPECT_EQ(definitions_.Site("train.py", 5, "main", 0), 5u);
  Take();
  EXPECT_EQ(definitions_.Site("new.py", 1, "main", 0), 0u);
  EXPECT_TRUE(Take().empty());  // nor a name of it
}

TEST_F(DefinitionsTest, FullRingGivesZeroAndTriesAgain) {
  std::vector<bool> told;
  definitions_.OnBlocked([&](bool blocked) { told.push_back(blocked); });
  const std::string name = Fill();
  EXPECT_EQ(definitions_.Function(
                {.name = name, .category = "x", .roles = {}, .parameters = {}}),
            0u);
  EXPECT_EQ(definitions_.ring().dropped_records(), 0u);
  definitions_.Retry();
  EXPECT_EQ(told, std::vector<bool>{true});
  Take();
  // Not while a record may be under way that has got a 0 already.
  EXPECT_EQ(definitions_.String(name), 0u);
  definitions_.Retry();
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
  const uint32_t id = definitions_.String(name);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(Take().back().id, id);
}

TEST_F(DefinitionsTest, WhatIsSaidOnceIsKeptInOrder) {
  Fill();
  for (uint32_t id = 1; id <= 40; ++id) {
    Definition def(definitions_, id, 0, Definition::NoRoom::kKeep);
    def.Text(Field::kName, "weight " + std::to_string(id));
    for (int i = 0; i < 50; ++i) def.Number(Field::kDimension, i);
    EXPECT_TRUE(def.Commit(RecordType::kVariableDef));
  }
  // More than the ring takes at a time.
  std::map<std::string, std::string> names;  // by number
  uint32_t variables = 0;
  const auto look = [&] {
    for (const Defined& defined : Take()) {
      if (defined.type == static_cast<uint8_t>(RecordType::kStringDef)) {
        names[std::to_string(defined.id)] = defined.fields.at(Field::kText)[0];
        continue;
      }
      EXPECT_EQ(defined.id, ++variables);
      EXPECT_EQ(names[defined.fields.at(Field::kName)[0]],
                "weight " + std::to_string(defined.id));
    }
  };
  for (int round = 0; definitions_.blocked(); ++round) {
    ASSERT_LT(round, 100);
    look();
    definitions_.Retry();
  }
  look();
  EXPECT_EQ(variables, 40u);
}

TEST_F(DefinitionsTest, FingerprintFollowsContent) {
  const auto fingerprint = [this](std::string_view text, uint64_t number) {
    Definition def(definitions_, 1);
    def.Text(Field::kName, text);
    def.Number(Field::kDimension, number);
    return def.fingerprint();
  };
  EXPECT_EQ(fingerprint("a", 1), fingerprint("a", 1));
  EXPECT_NE(fingerprint("a", 1), fingerprint("b", 1));
  EXPECT_NE(fingerprint("a", 1), fingerprint("a", 2));
}

TEST_F(DefinitionsTest, ProcessCarriesItsTextInline) {
  ProcessIdentity identity;
  identity.pid = 42;
  identity.run = "run-1";
  identity.experiment = "gpt";
  identity.owner_pid = 41;
  identity.kind = ProcessKind::kMain;
  definitions_.Process(identity);
  const std::vector<Defined> all = Take();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].type, static_cast<uint8_t>(RecordType::kProcessDef));
  EXPECT_EQ(all[0].id, 42u);
  EXPECT_EQ(all[0].fields.at(Field::kRun)[0], "run-1");
  EXPECT_EQ(all[0].fields.at(Field::kProcessKind)[0], "1");
  EXPECT_EQ(all[0].fields.at(Field::kOwnerPid)[0], "41");
  EXPECT_EQ(all[0].fields.count(Field::kCheckSet), 0u);
}

TEST_F(DefinitionsTest, TooLongForARecordIsRefused) {
  Definition def(definitions_, 1);
  for (int i = 0; i < 40000; ++i) def.Number(Field::kVariable, 1 << 20);
  EXPECT_FALSE(def.Commit(RecordType::kHoldDef));
  EXPECT_TRUE(Take().empty());
}

}  // namespace
}  // namespace traincheck::agent
