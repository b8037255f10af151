#include "invariants/rules/capture_plan.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(CapturePlan, AWholePlanIsTakenAsItIs) {
  const auto plan = PlanFromJsonUntrusted(R"({
    "format": 1, "version": 3, "mode": "selective",
    "calls": [
      {"function": "torch.nn.functional.dropout", "arguments": ["p"]},
      {"function": "torch.nn.init.*", "arguments": "*", "texts": ["mode"],
       "digests": ["tensor"], "returns": true, "autograd": false}],
    "state": {"parameter.grad": ["pre_step", "grad_clear"]},
    "sample": {"every": 8, "warm_up": 100}})");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->at("calls").size(), 2u);
  EXPECT_EQ(PlanText(*plan, 9),
            R"({"calls":[{"arguments":["p"],)"
            R"("function":"torch.nn.functional.dropout"},)"
            R"({"arguments":"*","autograd":false,"digests":["tensor"],)"
            R"("function":"torch.nn.init.*","returns":true,"texts":["mode"]}],)"
            R"("format":1,"mode":"selective","sample":{"every":8,)"
            R"("warm_up":100},"state":{"parameter.grad":["pre_step",)"
            R"("grad_clear"]},"version":9})");
}

TEST(CapturePlan, OnlyTheFormatIsRequired) {
  EXPECT_TRUE(PlanFromJsonUntrusted(R"({"format": 1})").ok());
}

TEST(CapturePlan, WhatIsWrongIsNamedWithItsPlace) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"", "document: not valid JSON"},
      {"[1]", "document: not an object"},
      {"{}", "format: missing"},
      {R"({"format": 2})", "format: not 1"},
      {R"({"format": 1, "mood": "full"})", "mood"},
      {R"({"format": 1, "mode": "all"})", "mode: none of"},
      {R"({"format": 1, "mode": "sampled"})", "sample: missing"},
      {R"({"format": 1, "version": -1})", "version: not an unsigned"},
      {R"({"format": 1, "calls": {}})", "calls: not an array"},
      {R"({"format": 1, "calls": [7]})", "calls[0]: not an object"},
      {R"({"format": 1, "calls": [{"function": ""}]})", "calls[0].function"},
      {R"({"format": 1, "calls": [{"function": "f", "arguments": "all"}]})",
       "calls[0].arguments: not an array"},
      {R"({"format": 1, "calls": [{"function": "f", "texts": [1]}]})",
       "calls[0].texts[0]: not a string"},
      {R"({"format": 1, "calls": [{"function": "f", "returns": 1}]})",
       "calls[0].returns: neither"},
      {R"({"format": 1, "calls": [{"function": "f", "shape": true}]})",
       "shape"},
      {R"({"format": 1, "state": {"moon.phase": []}})", "state.moon.phase"},
      {R"({"format": 1, "state": {"buffer.data": ["noon"]}})", "\"noon\""},
      {R"({"format": 1, "rows": {"buffer.data": ["noon"]}})", "rows.buffer"},
      {R"({"format": 1, "statistics": []})", "statistics"},
      {R"({"format": 1, "generators": 1})", "generators"},
      {R"({"format": 1, "zoom": []})", "zoom"},
      {R"({"format": 1, "zoom": {"steps": 0}})", "zoom.steps"},
      {R"({"format": 1, "zoom": {"steps": 2000}})", "zoom.steps"},
      {R"({"format": 1, "zoom": {"steps": 1, "calls": [{}]}})",
       "zoom.calls[0].function"},
      {R"({"format": 1, "zoom": {"steps": 1, "variables": "all"}})",
       "zoom.variables"},
      {R"({"format": 1, "zoom": {"steps": 1, "state": {"moon": []}}})",
       "zoom.state.moon"},
      {R"({"format": 1, "zoom": {"steps": 1, "rows": {}}})", "zoom.rows"},
      {R"({"format": 1, "sample": {"every": 3}})", "sample.every"},
      {R"({"format": 1, "sample": {}})", "sample.every: missing"},
  };
  for (const auto& c : kCases) {
    const auto plan = PlanFromJsonUntrusted(c.text);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument)
        << c.text;
    EXPECT_NE(std::string(plan.status().message()).find(c.error),
              std::string::npos)
        << c.text << ": " << plan.status();
  }
}

TEST(CapturePlan, WhatNoAgentWouldTakeIsRefused) {
  const std::string text = R"({"format": 1, "mode": ")" +
                           std::string(kMaxCapturePlanBytes, 'x') + "\"}";
  EXPECT_EQ(PlanFromJsonUntrusted(text).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(PlanFromJsonUntrusted(std::string(100'000, '[')).ok());
}

}  // namespace
}  // namespace traincheck
