// Small traces and rules for tests, written by hand from TrainCheck's formats.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_SMALL_TRACE_FOR_TESTING_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_SMALL_TRACE_FOR_TESTING_H_

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "invariants/traincheck/conformance/offline_check.h"
#include "invariants/traincheck/invariant_file.h"
#include "nlohmann/json.hpp"

namespace traincheck {

using Json = nlohmann::json;

inline Json Unconditional() {
  return {{"inverted", false},
          {"preconditions", Json::array({{{"clauses", "Unconditional"}}})}};
}

// Any of these lists of clauses.
inline Json AnyOf(const std::vector<Json>& alternatives,
                  bool inverted = false) {
  Json group = {{"inverted", inverted}, {"preconditions", Json::array()}};
  for (const Json& clauses : alternatives) {
    group["preconditions"].push_back({{"clauses", clauses}});
  }
  return group;
}

inline Json Clause(const char* type, const char* field,
                   const Json& values = nullptr, const Json& path = "None") {
  Json clause = {{"type", type},
                 {"prop_name", field},
                 {"additional_path", path},
                 {"prop_dtype", "int"}};
  if (!values.is_null()) clause["values"] = values;
  return clause;
}

// That one clause.
inline Json Where(const Json& clause) { return AnyOf({Json::array({clause})}); }

inline Json Function(const std::string& name) {
  return {{"param_type", "APIParam"}, {"api_full_name", name}};
}

inline Json Variable(const std::string& type, const std::string& attribute) {
  return {{"param_type", "VarTypeParam"},
          {"var_type", type},
          {"attr_name", attribute}};
}

inline Json Tensor(const char* name, const Json& index, const Json& path) {
  const bool input = std::string(name) != "output_tensors";
  return {{"param_type", "InputOutputParam"},
          {"name", name},
          {"index", index},
          {"type", "torch.Tensor"},
          {"additional_path", path},
          {"api_name", "m.f"},
          {"is_input", input}};
}

inline Json Rule(const char* relation, const std::vector<Json>& params,
                 const char* group, const Json& precondition) {
  return {{"relation", relation},
          {"params", params},
          {"precondition", {{group, precondition}}}};
}

// A folder with a trace of one process and thread, unless a line is edited.
class SmallTraceTest : public testing::Test {
 protected:
  SmallTraceTest()
      : folder_(std::filesystem::path(testing::TempDir()) /
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~SmallTraceTest() override { std::filesystem::remove_all(folder_); }

  // Each gives the line, to be edited before the next.
  Json& Begin(const std::string& function) {
    const std::string id = "id" + std::to_string(++calls_);
    open_.emplace_back(id, function);
    Json& line = Add("function_call (pre)", id, function);
    line["args"] = Json::object();
    line["kwargs"] = Json::object();
    return line;
  }
  Json& End(const Json& returned = {{"NoneType", nullptr}}) {
    const auto [id, function] = open_.back();
    open_.pop_back();
    Json& line = Add("function_call (post)", id, function);
    line["return_values"] = returned;
    return line;
  }
  Json& Raise() {
    const auto [id, function] = open_.back();
    open_.pop_back();
    Json& line = Add("function_call (post) (exception)", id, function);
    line["exception"] = "ValueError";
    return line;
  }
  void Call(const std::string& function) {
    Begin(function);
    End();
  }
  Json& State(const std::string& name, const Json& attributes) {
    Json& line = Add("state_change");
    line["var_name"] = name;
    line["var_type"] = "torch.nn.Parameter";
    line["attributes"] = attributes;
    return line;
  }
  // All further lines.
  void Step(int64_t step) { step_ = step; }
  void On(int64_t pid, int64_t thread) {
    pid_ = pid;
    thread_ = thread;
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::deque<Json>& lines() { return lines_; }
  std::string folder() const { return folder_.string(); }

  absl::StatusOr<OfflineCheck> CheckAll(const std::vector<Json>& rules) {
    std::string text;
    for (const Json& line : lines_) text += line.dump() + "\n";
    if (!text.empty()) Write("trace_API_1_10.log", text);
    std::string file;
    for (const Json& rule : rules) file += rule.dump() + "\n";
    return CheckFile(file);
  }
  absl::StatusOr<OfflineCheck> CheckFile(const std::string& text) {
    const auto rules = RuleLinesFromFileUntrusted(text);
    if (!rules.ok()) return rules.status();
    return CheckOfflineUntrusted(folder_.string(), *rules);
  }
  // "failed", "passed", "not triggered"; else why it is not checkable.
  std::vector<std::string> Verdicts(const std::vector<Json>& rules) {
    const absl::StatusOr<OfflineCheck> check = CheckAll(rules);
    EXPECT_TRUE(check.ok()) << check.status();
    if (!check.ok()) return {};
    std::vector<std::string> verdicts;
    for (const JudgedLine& line : check->lines) {
      verdicts.push_back(VerdictOf(line));
    }
    return verdicts;
  }
  std::string Verdict(const Json& rule) { return Verdicts({rule}).at(0); }

  static std::string VerdictOf(const JudgedLine& line) {
    switch (line.verdict) {
      case LineVerdict::kFailed:
        return "failed";
      case LineVerdict::kPassed:
        return "passed";
      case LineVerdict::kNotTriggered:
        return "not triggered";
      case LineVerdict::kNotCheckable:
        break;
    }
    return line.reason;
  }

 private:
  Json& Add(const char* type, const std::string& id = "",
            const std::string& function = "") {
    time_ += 10;
    Json& line = lines_.emplace_back();
    line = {{"type", type},
            {"process_id", pid_},
            {"thread_id", thread_},
            {"time", time_},
            {"meta_vars", {{"step", step_}}}};
    if (id.empty()) return line;
    line["func_call_id"] = id;
    line["function"] = function;
    line["is_bound_method"] = false;
    line["obj_id"] = nullptr;
    return line;
  }

  const std::filesystem::path folder_;
  std::deque<Json> lines_;
  std::vector<std::pair<std::string, std::string>> open_;  // id, function
  int64_t pid_ = 1;
  int64_t thread_ = 10;
  int64_t time_ = 1000;
  int64_t step_ = 0;
  int calls_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_SMALL_TRACE_FOR_TESTING_H_
