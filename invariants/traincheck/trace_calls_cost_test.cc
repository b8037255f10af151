// What converting a trace costs, where many calls are open.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "invariants/traincheck/trace_records.h"

namespace traincheck {
namespace {

namespace fs = std::filesystem;

// With a look at every open call for each line this would take minutes.
TEST(TraceCallsCost, CallsWithoutAnEndAreNotComparedWithEachOther) {
  constexpr int kCalls = 100'000;
  const fs::path folder = fs::path(testing::TempDir()) / "open";
  fs::create_directories(folder);
  std::ofstream file(folder / "trace_API_7_70.log", std::ios::binary);
  int time = 0;
  const auto write = [&](const char* type, const std::string& id) {
    file << R"({"type": "function_call )" << type
         << R"(", "process_id": 7, "thread_id": 70, "time": )" << ++time
         << R"(, "func_call_id": ")" << id << R"(", "function": "m.f"})"
         << "\n";
  };
  for (int i = 0; i < kCalls; ++i) write("(pre)", "b" + std::to_string(i));
  // Of other calls.
  for (int i = 0; i < kCalls; ++i) write("(post)", "e" + std::to_string(i));
  file.close();
  const auto trace = TraceFolder::Open(folder.string());
  ASSERT_TRUE(trace.ok()) << trace.status();
  const TraceProcess& process = (*trace)->processes().front();
  const auto report =
      ConvertProcess(**trace, process, IdentityOf(**trace, process, true),
                     [](const StoredBatch&) { return absl::OkStatus(); });
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->incomplete_calls, static_cast<uint64_t>(kCalls));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace traincheck
