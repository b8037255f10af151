#include "inference/precondition_learner.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

class LearnerTest : public testing::Test {
 protected:
  void Add(bool holds, uint64_t windows, std::vector<FactValue> facts) {
    examples_.push_back({holds, windows, std::move(facts)});
  }
  std::string Learn() {
    const auto learned = LearnPrecondition(facts_, examples_);
    return learned ? learned->ToJson().dump() : "none";
  }
  static std::string Constant(const char* fact, const char* value) {
    return std::string(R"({"clause":"constant","fact":")") + fact +
           R"(","value":)" + value + "}";
  }

  const std::vector<const Fact*> facts_ = {FindFact("call.stage"),
                                           FindFact("call.module_training"),
                                           FindFact("ctx.grad_mode")};
  std::vector<WeightedExample> examples_;
};

TEST_F(LearnerTest, OneClauseThatSeparates) {
  Add(true, 10, {std::string("training"), true, true});
  Add(true, 10, {std::string("evaluation"), true, false});
  Add(false, 5, {std::string("evaluation"), false, false});
  EXPECT_EQ(Learn(),
            R"({"all":[)" + Constant("call.module_training", "true") + "]}");
}

TEST_F(LearnerTest, TwoClausesWhereOneDoesNotDo) {
  Add(true, 10, {FactValue(), true, true});
  Add(false, 5, {FactValue(), false, true});
  Add(false, 5, {FactValue(), true, false});
  EXPECT_EQ(Learn(), R"({"all":[)" + Constant("call.module_training", "true") +
                         "," + Constant("ctx.grad_mode", "true") + "]}");
}

TEST_F(LearnerTest, WidestOfOneSize) {
  Add(true, 10, {std::string("training"), true, true});
  Add(true, 8, {std::string("init"), true, true});
  Add(false, 1, {std::string("evaluation"), false, false});
  // Both flags cover 18; the stage alone 10.
  EXPECT_EQ(Learn(),
            R"({"all":[)" + Constant("call.module_training", "true") + "]}");
}

TEST_F(LearnerTest, NothingSeparatesEqualRows) {
  Add(true, 10, {std::string("training"), true, true});
  Add(false, 1, {std::string("training"), true, true});
  EXPECT_EQ(Learn(), "none");
}

TEST_F(LearnerTest, AnUnknownFactExcludesNothing) {
  Add(true, 10, {FactValue(), true, FactValue()});
  Add(false, 1, {FactValue(), FactValue(), FactValue()});
  EXPECT_EQ(Learn(), R"({"all":[{"clause":"exists","fact":)"
                     R"("call.module_training"}]})");
}

TEST_F(LearnerTest, AConditionThatLeavesMostOutIsNone) {
  Add(true, 1, {std::string("training"), true, true});
  Add(true, 10, {std::string("evaluation"), false, false});
  Add(false, 5, {std::string("evaluation"), false, false});
  EXPECT_EQ(Learn(), "none");
}

TEST_F(LearnerTest, SeveralListsWhereNoneCoversAll) {
  Add(true, 10, {FactValue(), true, false});
  Add(true, 8, {FactValue(), false, true});
  Add(true, 1, {FactValue(), false, FactValue()});
  Add(false, 5, {FactValue(), false, false});
  EXPECT_EQ(Learn(),
            R"({"any":[{"all":[)" + Constant("call.module_training", "true") +
                R"(]},{"all":[)" + Constant("ctx.grad_mode", "true") + "]}]}");
}

TEST_F(LearnerTest, ConditionThatLetsAWindowWithoutTheEventIn) {
  Add(true, 10, {std::string("training"), true, true});
  Add(false, 5, {std::string("evaluation"), false, false});
  const auto learned = LearnPrecondition(facts_, examples_);
  ASSERT_TRUE(learned);
  EXPECT_FALSE(IsViolated(*learned, facts_, examples_));
  const std::vector<WeightedExample> others = {
      {false, 1, {std::string("training"), true, true}}};
  EXPECT_TRUE(IsViolated(*learned, facts_, others));
}

TEST(LearnerNumbers, AreNoConstants) {
  const std::vector<const Fact*> facts = {FindFact("var.effective_lr")};
  const std::vector<WeightedExample> examples = {{true, 10, {0.1}},
                                                 {false, 10, {0.2}}};
  EXPECT_FALSE(LearnPrecondition(facts, examples).has_value());
}

}  // namespace
}  // namespace traincheck
