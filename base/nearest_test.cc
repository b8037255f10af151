#include "base/nearest.h"

#include "gtest/gtest.h"

namespace traincheck {
namespace {

const std::vector<std::string> kWords = {"run", "runs", "violations", "sets"};

TEST(NearestTest, FindsWhatWasMeant) {
  EXPECT_EQ(NearestWord("rnu", kWords), "run");
  EXPECT_EQ(NearestWord("rnus", kWords), "runs");
  EXPECT_EQ(NearestWord("violation", kWords), "violations");
  EXPECT_EQ(NearestWord("set", kWords), "sets");
}

TEST(NearestTest, GuessesNothingFarOff) {
  EXPECT_EQ(NearestWord("deploy", kWords), "");
  EXPECT_EQ(NearestWord("", kWords), "");
  EXPECT_EQ(NearestWord(std::string(100'000, 'x'), kWords), "");
  EXPECT_EQ(NearestWord("run", {}), "");
}

}  // namespace
}  // namespace traincheck
