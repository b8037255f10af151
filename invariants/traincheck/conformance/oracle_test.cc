// TrainCheck's own traces and files get TrainCheck's own verdicts, line by
// line. They are no part of this project: TRAINCHECK_ORACLES names the folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "invariants/traincheck/conformance/offline_check.h"
#include "invariants/traincheck/invariant_file.h"
#include "nlohmann/json.hpp"

namespace traincheck {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string TextOf(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// What is expected of each line: {"failed": [1, 2], ...}.
std::map<uint64_t, std::string> Expected(const json& verdicts) {
  std::map<uint64_t, std::string> expected;
  for (const auto& [verdict, lines] : verdicts.items()) {
    for (const json& line : lines) expected[line.get<uint64_t>()] = verdict;
  }
  return expected;
}

std::string NameOf(LineVerdict verdict) {
  switch (verdict) {
    case LineVerdict::kFailed:
      return "failed";
    case LineVerdict::kPassed:
      return "passed";
    case LineVerdict::kNotTriggered:
      return "not_triggered";
    case LineVerdict::kNotCheckable:
      break;
  }
  return "not_checkable";
}

TEST(OracleTest, EachLineHasTrainChecksVerdict) {
  const char* const oracles = std::getenv("TRAINCHECK_ORACLES");
  if (oracles == nullptr) {
    GTEST_SKIP() << "TRAINCHECK_ORACLES names no folder of TrainCheck's files";
  }
  const fs::path root(oracles);
  for (const auto& entry : fs::directory_iterator(root / "expected")) {
    // RULES@TRACE.json
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const json file = json::parse(TextOf(entry.path()));
    const fs::path trace = root / "traces" / name.substr(name.find('@') + 1);
    const auto rules = RuleLinesFromFileUntrusted(
        TextOf(root / "invariants" / file["invariants"].get<std::string>()));
    ASSERT_TRUE(rules.ok()) << rules.status();
    const auto check = CheckOfflineUntrusted(trace.string(), *rules);
    ASSERT_TRUE(check.ok()) << check.status();
    std::map<uint64_t, std::string> verdicts;
    for (const JudgedLine& line : check->lines) {
      verdicts[line.line] = NameOf(line.verdict);
    }
    EXPECT_EQ(verdicts, Expected(file["verdicts_by_line"]));
  }
}

}  // namespace
}  // namespace traincheck
