#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "invariants/rules/capture_needs.h"

namespace traincheck {
namespace {

// The table in capture_needs.cc is that of the agent: a category is recorded
// under every plan if each of its functions belongs to the skeleton.
TEST(Skeleton, CategoriesOfTheSkeletonAreThoseOfTheCatalogue) {
  std::ifstream file("agent/python/hooks/catalogue.py");
  ASSERT_TRUE(file.good());
  const std::regex head(R"(^(\S+)  (skeleton|full)  (\S+)  .*)");
  std::map<std::string, bool> always;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, head)) continue;
    const bool skeleton = match[2] == "skeleton";
    const auto [found, added] = always.emplace(match[3], skeleton);
    found->second &= skeleton;
  }
  ASSERT_GT(always.size(), 20u);
  for (const auto& [category, is_always] : always) {
    EXPECT_EQ(IsAlwaysRecorded(category), is_always) << category;
  }
}

}  // namespace
}  // namespace traincheck
