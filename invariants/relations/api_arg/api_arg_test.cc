#include "invariants/relations/api_arg/api_arg.h"

#include <gtest/gtest.h>

#include "invariants/rules/capture_needs.h"

namespace traincheck {
namespace {

// Must the texts be recorded that the function's argument x is given?
bool NeedsTexts(const nlohmann::json& values) {
  const nlohmann::json parameters = {{"is", "usage"},
                                     {"function", {{"name", "my.f"}}},
                                     {"values", {{"x", values}}}};
  const auto rule = ApiArg()->Parse(parameters, "");
  EXPECT_TRUE(rule.ok()) << rule.status();
  CaptureNeeds needs;
  if (rule.ok()) (*rule)->AddNeeds(&needs);
  return needs.Calls("my.f").texts.contains("x");
}

TEST(ArgUsage, NeedsTheTextsAmongItsValues) {
  EXPECT_TRUE(NeedsTexts({"mean"}));
  EXPECT_TRUE(NeedsTexts({nullptr, "mean"}));
  EXPECT_TRUE(NeedsTexts({0, "mean", "a tensor"}));
  EXPECT_FALSE(NeedsTexts({nullptr, 1}));
  EXPECT_FALSE(NeedsTexts({nullptr, "a tensor"}));
}

}  // namespace
}  // namespace traincheck
