// TrainCheck's files in and out, as a process, against a server with canned
// data.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ctl/testing/fake_control.h"
#include "ctl/testing/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace traincheck::ctl {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kRule[] =
    R"({"text_description": "TBD merged", "relation": "APIContainRelation", )"
    R"("params": [{"param_type": "APIParam", "api_full_name": "torch.f"}, )"
    R"({"param_type": "APIParam", "api_full_name": "torch.g"}], )"
    R"("precondition": {"parent_func_call_pre": {"inverted": false, )"
    R"("preconditions": [{"clauses": "Unconditional"}]}}})";
constexpr char kUserRule[] =
    R"({"relation": "DistinctArgumentRelation", "params": [{"param_type": )"
    R"("APIParam", "api_full_name": "__main__.f"}], "precondition": )"
    R"({"distinct_arg": {"inverted": true, "preconditions": []}}})";
// Learned here.
constexpr char kNative[] =
    R"({"id": "62bb68860ea61906", "relation": "SavedEqualsLive", )"
    R"("parameters": {"what": "keys"}, "precondition": {"all": []}, )"
    R"("scope": "general", "experiments": [], "support": 3, "text": ""})";

class TrainCheckCommandsTest : public testing::Test {
 protected:
  TrainCheckCommandsTest()
      : folder_(fs::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    server_.Edit([](FakeData& data) {
      v1::Run run;
      run.set_id("r1");
      data.runs.push_back(run);
    });
  }
  ~TrainCheckCommandsTest() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", server_.address()});
    return RunProcess(Ctl(arguments));
  }

  // What the server was sent last.
  Json Imported() {
    Json set;
    server_.Edit([&](FakeData& data) {
      set = Json::parse(data.last_import.json(), nullptr, false);
    });
    return set;
  }

  // The server has a set of these.
  void HaveSet(const Json& invariants) {
    Json set = Imported();
    set["invariants"] = invariants;
    server_.Edit([&](FakeData& data) {
      v1::SetDetail detail;
      detail.mutable_summary()->set_name("s");
      detail.set_json(set.dump());
      data.sets = {detail};
    });
  }

  ProcessResult Import(const std::string& text,
                       std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"invariants", "import", "--format", "traincheck",
                               "--set", "s", Write("rules.json", text)});
    return Run(more);
  }

  ProcessResult Export() {
    return Run(
        {"invariants", "export", "--format", "traincheck", "--set", "s", "-"});
  }

  const fs::path folder_;
  FakeControl server_;
};

TEST_F(TrainCheckCommandsTest, AFileBecomesASetOfOurs) {
  const ProcessResult result =
      Import(std::string(kRule) + "\n" + kUserRule + "\n",
             {"--experiment", "vision,text"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const Json set = Imported();
  EXPECT_EQ(set["format"], "traincheck-invariants");
  ASSERT_EQ(set["invariants"].size(), 2u);
  for (const Json& rule : set["invariants"]) {
    EXPECT_EQ(rule["relation"], "TrainCheck");
    const bool general = rule["origin"]["lines"] == Json({1});
    EXPECT_EQ(rule["scope"], general ? "general" : "experiment");
    EXPECT_EQ(rule["experiments"].size(), general ? 0u : 2u);
  }
}

TEST_F(TrainCheckCommandsTest, RulesThatApplyNowhereAreTold) {
  const ProcessResult result = Import(kUserRule);
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("1 of 1 rules name what is not torch's"));
}

TEST_F(TrainCheckCommandsTest, ABadLineIsNamedAndNothingIsSent) {
  const ProcessResult result = Import(std::string(kRule) + "\n{}\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("rules.json: line 2: relation: missing"));
  EXPECT_TRUE(Imported().is_discarded());
}

TEST_F(TrainCheckCommandsTest, ExportGivesTheLinesAndCountsTheRest) {
  ASSERT_EQ(Import(kRule).code, 0);
  Json invariants = Imported()["invariants"];
  HaveSet(invariants);
  ProcessResult result = Export();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out), Json::parse(kRule));
  EXPECT_EQ(result.err, "");
  invariants.push_back(Json::parse(kNative));
  HaveSet(invariants);
  result = Export();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out), Json::parse(kRule));
  EXPECT_THAT(result.err, HasSubstr("left out 1 invariants"));
  HaveSet(Json::array({Json::parse(kNative)}));
  result = Export();
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("has no rule of TrainCheck's"));
}

TEST_F(TrainCheckCommandsTest, OtherFormatsAreUsageErrors) {
  EXPECT_EQ(
      Run({"invariants", "export", "--format", "xml", "--set", "s", "-"}).code,
      2);
  EXPECT_EQ(Run({"import", "--format", "json", "--run", "r", "."}).code, 2);
  EXPECT_EQ(Run({"import", "--run", "r", "."}).code, 2);
}

TEST_F(TrainCheckCommandsTest, AFolderMustHoldATraceAndTheRunBeNew) {
  const auto import = [this](const char* run) {
    return Run(
        {"import", "--format", "traincheck", "--run", run, folder_.string()});
  };
  ProcessResult result = import("r2");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("holds no trace"));
  Write("trace_API_1_2.log", "");
  result = import("r2");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("hold no line"));
  Write("trace_API_1_2.log", "{\n");
  result = import("r2");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("trace_API_1_2.log line 1: not valid"));
  Write("trace_API_1_2.log",
        R"json({"type": "function_call (pre)", "process_id": 1, )json"
        R"json("thread_id": 2, "time": 3, "func_call_id": "a", )json"
        R"json("function": "torch.f"})json");
  result = import("r1");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("run \"r1\" exists already"));
  EXPECT_EQ(import("a b").code, 2);
  // A server that takes no records.
  EXPECT_EQ(import("r2").code, 3);
}

class CompatCheckTest : public TrainCheckCommandsTest {
 protected:
  // m.f calls torch.g in step 0 and does not in step 1.
  CompatCheckTest() {
    int calls = 0;
    const auto line = [](const char* type, int call, const char* function,
                         int step) {
      static int time = 0;
      const Json json = {{"type", type},
                         {"process_id", 7},
                         {"thread_id", 70},
                         {"time", ++time},
                         {"func_call_id", std::to_string(call)},
                         {"function", function},
                         {"meta_vars", {{"step", step}}}};
      return json.dump() + "\n";
    };
    std::string text;
    for (int step = 0; step < 2; ++step) {
      const int outer = ++calls;
      text += line("function_call (pre)", outer, "torch.f", step);
      if (step == 0) {
        ++calls;
        text += line("function_call (pre)", calls, "torch.g", step);
        text += line("function_call (post)", calls, "torch.g", step);
      }
      text += line("function_call (post)", outer, "torch.f", step);
    }
    fs::create_directories(folder_ / "trace");
    Write("trace/trace_API_7_70.log", text);
  }

  ProcessResult Check(const std::string& rules,
                      std::vector<std::string> more = {}) {
    const std::vector<std::string> check = {"check",
                                            "--compat",
                                            "traincheck",
                                            "--trace",
                                            (folder_ / "trace").string(),
                                            "--invariants",
                                            Write("rules.json", rules)};
    more.insert(more.begin(), check.begin(), check.end());
    return RunProcess(Ctl(more));  // without a server
  }
};

TEST_F(CompatCheckTest, EachLineHasItsVerdict) {
  const ProcessResult result =
      Check(std::string(kRule) + "\n" + kUserRule + "\n");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("/trace, 1 file, 6 lines\n"));
  EXPECT_THAT(
      result.out,
      HasSubstr("\nline 1 failed: Every call of torch.f calls torch.g.\n"
                "  it does not call torch.g\n"
                "  trace_API_7_70.log line 5: torch.f, process 7, step "
                "1\n"));
}

TEST_F(CompatCheckTest, JsonHasOneEntryForEachLine) {
  const std::string rules =
      Write("rules.json", std::string(kRule) + "\n\n" + kUserRule + "\n");
  const ProcessResult result = RunProcess(
      Ctl({"-o", "json", "check", "--compat", "traincheck", "--trace",
           (folder_ / "trace").string(), "--invariants", rules}));
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["verdicts_by_line"],
            Json::parse(R"({"failed": [1], "passed": [], )"
                        R"("not_triggered": [3], "not_checkable": []})"));
  ASSERT_EQ(json["lines"].size(), 2u);
  const Json& line = json["lines"][0];
  EXPECT_EQ(line["line"], 1);
  EXPECT_EQ(line["relation"], "APIContainRelation");
  EXPECT_EQ(line["verdict"], "failed");
  EXPECT_EQ(line["reason"], "it does not call torch.g");
  EXPECT_EQ(line["where"][0]["line"], 5);
  EXPECT_EQ(line["where"][0]["step"], "1");
  EXPECT_TRUE(json["lines"][1]["reason"].is_null());
}

TEST_F(CompatCheckTest, ItIsAGateAsOtherChecksAre) {
  EXPECT_EQ(Check(kRule, {"--fail-on-violation"}).code, 10);
  ProcessResult result = Check(kUserRule, {"--fail-on-violation"});
  EXPECT_EQ(result.code, 11);
  EXPECT_THAT(result.err, HasSubstr("0 of 0 rules decided"));
  // The end of a call that never began: TrainCheck refuses the trace.
  Write("trace/trace_API_8_80.log",
        R"json({"type": "function_call (post)", "process_id": 8, )json"
        R"json("thread_id": 80, "time": 3, "func_call_id": "x", )json"
        R"json("function": "torch.h"})json"
        "\n");
  result = Check(kRule, {"--min-coverage", "1"});
  EXPECT_EQ(result.code, 11);
  EXPECT_THAT(result.out,
              HasSubstr("1 line not checkable: TrainCheck refuses the trace: "
                        "the call x of torch.h ends and never began\n"
                        "  line 1\n"));
}

TEST_F(CompatCheckTest, WhatCannotBeReadIsNamed) {
  ProcessResult result = Check("{}\n");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("rules.json: line 1: relation: missing"));
  Write("trace/trace_API_8_80.log", "{\n");
  result = Check(kRule);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("trace_API_8_80.log: line 1: not valid"));
  const std::vector<std::string> check = {"check", "--compat", "traincheck"};
  EXPECT_EQ(RunProcess(Ctl(check)).code, 2);
  EXPECT_EQ(RunProcess(Ctl({"check"})).code, 2);
  EXPECT_EQ(RunProcess(Ctl({"check", "--run", "r", "--trace", "."})).code, 2);
  EXPECT_EQ(RunProcess(Ctl({"check", "--compat", "other"})).code, 2);
}

}  // namespace
}  // namespace traincheck::ctl
