#include "invariants/traincheck/trace_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "invariants/traincheck/function_kind.h"

namespace traincheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class TraceFolderTest : public testing::Test {
 protected:
  TraceFolderTest()
      : folder_(fs::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~TraceFolderTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  std::unique_ptr<TraceFolder> Open() {
    auto folder = TraceFolder::Open(folder_.string());
    EXPECT_TRUE(folder.ok()) << folder.status();
    return folder.ok() ? *std::move(folder) : nullptr;
  }

  const fs::path folder_;
};

json Pre(uint64_t time, const std::string& function, uint32_t pid = 7) {
  return {{"type", "function_call (pre)"},
          {"process_id", pid},
          {"thread_id", 70},
          {"time", time},
          {"func_call_id", "id"},
          {"function", function},
          {"is_bound_method", false},
          {"obj_id", nullptr},
          {"args", json::object()},
          {"kwargs", json::object()},
          {"meta_vars", {{"step", 0}}}};
}

json State(uint64_t time, uint32_t pid = 7) {
  return {{"type", "state_change"}, {"process_id", pid},
          {"thread_id", 70},        {"time", time},
          {"var_name", "model.w"},  {"var_type", "torch.nn.Parameter"},
          {"meta_vars", {}},        {"attributes", {{"data", 5}}}};
}

std::string Without(json line, const char* key) {
  line.erase(key);
  return line.dump();
}

std::string With(json line, const char* key, json value) {
  line[key] = std::move(value);
  return line.dump();
}

TEST_F(TraceFolderTest, LinesOfAllFilesAreSortedByProcessAndTime) {
  Write("trace_API_7_70.log",
        Pre(20, "torch.f").dump() + "\n" + Pre(40, "torch.g").dump() + "\n");
  Write("trace_VAR_7_70.log", State(30).dump() + "\n");
  Write("proxy_log.json", State(10, 8).dump() + "\n" + State(25).dump());
  Write("env_dump.txt", "no trace\n");
  const auto folder = Open();
  ASSERT_NE(folder, nullptr);
  EXPECT_EQ(folder->files(), 3u);
  EXPECT_EQ(folder->lines(), 5u);
  EXPECT_TRUE(folder->skipped().empty());
  ASSERT_EQ(folder->processes().size(), 2u);
  const TraceProcess& process = folder->processes()[0];
  EXPECT_EQ(process.pid, 7u);
  EXPECT_TRUE(process.has_calls);
  EXPECT_TRUE(process.trains);
  std::vector<uint64_t> times;
  for (const LinePlace& place : process.lines) {
    const auto line = folder->Read(place);
    ASSERT_TRUE(line.ok()) << line.status();
    times.push_back(line->time_ns);
  }
  EXPECT_EQ(times, (std::vector<uint64_t>{20, 25, 30, 40}));
  EXPECT_FALSE(folder->processes()[1].has_calls);
}

TEST_F(TraceFolderTest, EachBadLineIsNamedAndTheRestIsKept) {
  const json good = Pre(1, "torch.f");
  const std::pair<std::string, std::string> bad[] = {
      {"{", "not valid JSON"},
      {"", "an empty line"},
      {"[1]", "not a JSON object"},
      {R"({"type": "state_change", "attributes": {"data": NaN}})",
       "not valid JSON, with a NaN that may be the cause"},
      {Without(good, "type"), "type: missing"},
      {With(good, "type", "heartbeat"),
       "type: \"heartbeat\" is not a type of record"},
      {Without(good, "process_id"), "process_id: missing"},
      {With(good, "process_id", 0), "process_id: is 0"},
      {With(good, "process_id", "7"),
       "process_id: not an integer from 0 to 2147483647"},
      {Without(good, "thread_id"), "thread_id: missing"},
      {With(good, "time", -3),
       "time: not an integer from 0 to 4611686018427387903"},
      {Without(good, "func_call_id"), "func_call_id: missing"},
      {With(good, "function", 3), "function: not a text"},
      {Without(State(1), "attributes"), "attributes: missing"},
      {With(State(1), "attributes", 3), "attributes: not an object"},
      {Without(State(1), "var_name"), "var_name: missing"},
  };
  std::string text;
  for (const auto& [line, reason] : bad) text += line + "\n";
  text += good.dump() + "\n" + good.dump().substr(0, 50);
  Write("trace_API_7_70.log", text);
  const auto folder = Open();
  ASSERT_NE(folder, nullptr);
  ASSERT_EQ(folder->skipped().size(), std::size(bad) + 1);
  for (size_t i = 0; i < std::size(bad); ++i) {
    EXPECT_EQ(folder->skipped()[i].file, "trace_API_7_70.log");
    EXPECT_EQ(folder->skipped()[i].line, i + 1);
    EXPECT_EQ(folder->skipped()[i].reason, bad[i].second);
  }
  EXPECT_EQ(folder->skipped().back().reason,
            "the last line, cut off in the middle");
  EXPECT_EQ(folder->lines(), std::size(bad) + 2);
  EXPECT_EQ(folder->processes()[0].lines.size(), 1u);
}

TEST_F(TraceFolderTest, RanksAreToldByEitherSide) {
  json init = Pre(1, "torch.distributed.distributed_c10d.init_process_group");
  init["kwargs"] = {{"rank", {{"int", 2}}}, {"world_size", {{"int", 4}}}};
  json text = State(2, 8);
  text["meta_vars"] = {{"_DATA_PARALLEL_RANK", "1"}};
  Write("trace_API_7_70.log", init.dump() + "\n");
  Write("trace_VAR_8_70.log", text.dump() + "\n" + State(3, 9).dump() + "\n");
  const auto folder = Open();
  ASSERT_NE(folder, nullptr);
  ASSERT_EQ(folder->processes().size(), 3u);
  EXPECT_EQ(folder->processes()[0].rank, 2);
  EXPECT_EQ(folder->processes()[1].rank, 1);
  EXPECT_EQ(folder->processes()[1].world, 4);
  EXPECT_EQ(folder->processes()[2].rank, std::nullopt);
}

TEST_F(TraceFolderTest, ACallNeverStandsBeforeTheOneAboveIt) {
  Write("trace_API_7_70.log",
        Pre(50, "torch.f").dump() + "\n" + Pre(40, "torch.g").dump() + "\n");
  const auto folder = Open();
  ASSERT_NE(folder, nullptr);
  EXPECT_EQ(folder->processes()[0].lines[1].order_ns, 50u);
  EXPECT_EQ(folder->processes()[0].lines[1].line, 2u);
}

TEST_F(TraceFolderTest, WithoutATraceThereIsNothing) {
  EXPECT_TRUE(absl::IsNotFound(
      TraceFolder::Open((folder_ / "nowhere").string()).status()));
  Write("readme.txt", "hello");
  EXPECT_TRUE(absl::IsNotFound(TraceFolder::Open(folder_.string()).status()));
}

TEST(FunctionKind, IsThatOfTheAgent) {
  const auto kind = [](const char* name, bool bound) {
    const FunctionKind found = KindOfFunction(name, bound);
    return found.category +
           (found.roles.empty() ? "" : " " + found.roles.front());
  };
  EXPECT_EQ(kind("__main__.Net.forward", true),
            "forward torch.nn.modules.module.Module.forward");
  EXPECT_EQ(kind("__main__.forward", false), "");
  EXPECT_EQ(kind("torch.optim.sgd.SGD.step", true),
            "optimizer_step torch.optim.optimizer.Optimizer.step");
  EXPECT_EQ(kind("torch.optim.lr_scheduler.StepLR.step", true),
            "scheduler schedule");
  EXPECT_EQ(kind("torch.optim.optimizer.Optimizer.zero_grad", true),
            "zero_grad");
  EXPECT_EQ(kind("torch.Tensor.backward", true), "backward");
  EXPECT_EQ(kind("torch.utils.data.dataloader."
                 "_SingleProcessDataLoaderIter._next_data",
                 true),
            "loader_next "
            "torch.utils.data.dataloader._BaseDataLoaderIter.__next__");
  EXPECT_EQ(kind("torch.distributed.distributed_c10d.all_reduce", false),
            "collective");
  EXPECT_EQ(kind("torch.nn.init.kaiming_uniform_", false),
            "initialiser initialiser");
  EXPECT_EQ(kind("torch.relu", false), "operation");
  EXPECT_EQ(kind("torch._assert", false), "");
}

TEST(FunctionKind, Classes) {
  EXPECT_EQ(KindOfClass("torch.nn.modules.linear.Linear", false),
            ObjectKind::kModule);
  EXPECT_EQ(KindOfClass("__main__.Net", true), ObjectKind::kModule);
  EXPECT_EQ(KindOfClass("__main__.Net", false), ObjectKind::kOther);
  EXPECT_EQ(KindOfClass("torch.optim.adam.Adam", false),
            ObjectKind::kOptimizer);
  EXPECT_TRUE(IsTensorClass("torch.cuda.FloatTensor"));
  EXPECT_TRUE(IsTensorClass("torch.nn.Parameter"));
  EXPECT_FALSE(IsTensorClass("torch.optim.sgd.SGD"));
}

}  // namespace
}  // namespace traincheck
