#include "agent/relay/identity.h"

#include <gtest/gtest.h>

#include "agent/ring/ring_for_testing.h"
#include "proto/record_writer.h"

namespace traincheck::agent {
namespace {

// A ProcessDef as an agent writes it; `change` may add fields.
template <typename Change>
std::string ProcessDef(Change change) {
  alignas(8) char buffer[2048];
  FieldWriter out(buffer, sizeof buffer, DefinitionRecord{{}, 1, 0});
  change(&out);
  const size_t size = out.Finish(RecordType::kProcessDef, 0, 0);
  return std::string(buffer, size);
}

void AddIdentity(FieldWriter* out) {
  out->Bytes(Field::kHost, "node7");
  out->Bytes(Field::kBootId, "0f-a1");
  out->Unsigned(Field::kStartTicks, 1234);
}

TEST(FindIntroduction, TakesAllFields) {
  const std::string record = ProcessDef([](FieldWriter* out) {
    AddIdentity(out);
    out->Unsigned(Field::kParentPid, 7);
    out->Unsigned(Field::kProcessKind, 2);
    out->Unsigned(Field::kWorkerId, 3);
    out->Unsigned(Field::kOwnerPid, 8);
    out->Unsigned(Field::kOwnerTicks, 9);
    out->Bytes(Field::kRun, "r");
    out->Bytes(Field::kExperiment, "e");
    out->Unsigned(Field::kAttempt, 4);
    out->Unsigned(Field::kRunRole, 1);
    out->Bytes(Field::kCheckSet, "s");
    out->Bytes(Field::kScript, "train\xff.py");
    out->Bytes(Field::kAgentVersion, "0.1");
    out->Bytes(Field::kTorchVersion, "2.13");
    out->Bytes(Field::kPythonVersion, "3.11");
    out->Unsigned(Field::kFirstRecordedNs, 99);
  });
  const v1::Hello hello = FindIntroduction(record, 42).value().value().hello;
  EXPECT_EQ(hello.ShortDebugString(),
            "format_version_min: 1 format_version_max: 1 agent_version: "
            "\"0.1\" process { host: \"node7\" boot_id: \"0f-a1\" pid: 42 "
            "start_ticks: 1234 parent_pid: 7 kind: PROCESS_KIND_WORKER "
            "worker_id: 3 owner_pid: 8 owner_start_ticks: 9 } run: \"r\" "
            "experiment: \"e\" attempt: 4 role: RUN_ROLE_REFERENCE "
            "check_set: \"s\" script: \"train?.py\" torch_version: \"2.13\" "
            "python_version: \"3.11\" started_unix_ns: 99");
  EXPECT_EQ(SpoolName(hello.process()), "0f-a1-42-1234.spool");
}

TEST(FindIntroduction, ProgramsOfOneProcessHaveSpoolFilesOfTheirOwn) {
  const std::string record = ProcessDef([](FieldWriter* out) {
    AddIdentity(out);
    out->Unsigned(Field::kImage, 0xabc);
  });
  v1::ProcessIdentity process =
      FindIntroduction(record, 42).value().value().hello.process();
  EXPECT_EQ(process.image(), 0xabcu);
  const std::string name = SpoolName(process);
  EXPECT_EQ(EarlierSpoolName(process), "0f-a1-42-1234-0000000000000abc.spool");
  EXPECT_TRUE(IsSpoolNameOf(EarlierSpoolName(process), process));
  EXPECT_TRUE(IsSpoolNameOf(name, process));
  EXPECT_TRUE(IsSpoolNameOf("0f-a1-42-1234.spool", process));
  EXPECT_FALSE(IsSpoolNameOf("0f-a1-42-12345.spool", process));
  process.set_pid(43);
  EXPECT_FALSE(IsSpoolNameOf(name, process));
}

// Names are printed into logs that others read.
TEST(SpoolName, DoesNotSayTheImage) {
  v1::ProcessIdentity process;
  process.set_boot_id("0f-a1");
  process.set_pid(42);
  process.set_start_ticks(1234);
  EXPECT_EQ(SpoolName(process), "0f-a1-42-1234.spool");
  process.set_image(0xabc);
  // By `printf 'traincheck spool 0000000000000abc' | sha256sum`.
  EXPECT_EQ(SpoolName(process), "0f-a1-42-1234-97d4d846a340daa8.spool");
}

TEST(SpoolName, NamesTheProcess) {
  for (const char* name :
       {"0f-a1-42-1234-0123456789abcdef.spool", "0f-a1-42-1234.spool"}) {
    const auto process = ProcessOfSpoolName(name, "0f-a1");
    ASSERT_TRUE(process.has_value()) << name;
    EXPECT_EQ(process->pid(), 42u);
    EXPECT_EQ(process->start_ticks(), 1234u);
  }
  for (const char* name :
       {"0f-a2-42-1234.spool", "0f-a1-42.spool", "0f-a1.spool", "a.spool",
        "0f-a1-x-1234.spool", "0f-a1--1234.spool", "0f-a142-1234.spool", ""}) {
    EXPECT_FALSE(ProcessOfSpoolName(name, "0f-a1").has_value()) << name;
  }
  EXPECT_FALSE(ProcessOfSpoolName("-42-1234.spool", "").has_value());
}

TEST(FindIntroduction, PassesOtherRecordsAndWaitsForTheRest) {
  const std::string other = StringDefBytes(1, 30);
  const std::string bytes = other + ProcessDef(AddIdentity);
  EXPECT_TRUE(FindIntroduction(bytes, 1).value().has_value());
  for (size_t size = 0; size < bytes.size(); size += 8) {
    EXPECT_FALSE(
        FindIntroduction(bytes.substr(0, size), 1).value().has_value());
  }
}

std::string NamedRun(const char* run, bool provisional) {
  return ProcessDef([=](FieldWriter* out) {
    AddIdentity(out);
    out->Bytes(Field::kRun, run);
    if (provisional) out->Unsigned(Field::kRunIsProvisional, 1);
  });
}

TEST(FindIntroduction, TakesTheFirstNameThatIsFinal) {
  const std::string first = NamedRun("mine", true);
  const Introduction early = FindIntroduction(first, 1).value().value();
  EXPECT_EQ(early.hello.run(), "mine");
  EXPECT_TRUE(early.run_is_provisional);
  const Introduction late =
      FindIntroduction(first + StringDefBytes(1, 30) + first +
                           NamedRun("agreed", false) + NamedRun("no", false),
                       1)
          .value()
          .value();
  EXPECT_EQ(late.hello.run(), "agreed");
  EXPECT_FALSE(late.run_is_provisional);
}

TEST(FindIntroduction, MakesTextUtf8) {
  const auto script = [](const char* text) {
    return FindIntroduction(ProcessDef([text](FieldWriter* out) {
                              AddIdentity(out);
                              out->Bytes(Field::kScript, text);
                            }),
                            1)
        .value()
        ->hello.script();
  };
  EXPECT_EQ(script("é€😀"), "é€😀");
  EXPECT_EQ(script("a\xc0\xaf\xed\xa0\x80z\xe2\x82"), "a?????z??");
}

TEST(FindIntroduction, RefusesWhatNamesNobody) {
  EXPECT_FALSE(FindIntroduction(ProcessDef([](FieldWriter*) {}), 1).ok());
  EXPECT_FALSE(FindIntroduction(ProcessDef([](FieldWriter* out) {
                                  out->Bytes(Field::kBootId, "../../etc");
                                  out->Unsigned(Field::kStartTicks, 1);
                                }),
                                1)
                   .ok());
  EXPECT_FALSE(FindIntroduction(ProcessDef([](FieldWriter* out) {
                                  out->Bytes(Field::kBootId, "a");
                                }),
                                1)
                   .ok());
}

}  // namespace
}  // namespace traincheck::agent
