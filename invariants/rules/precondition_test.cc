#include "invariants/rules/precondition.h"

#include <gtest/gtest.h>

#include <map>

namespace traincheck {
namespace {

class PreconditionTest : public testing::Test {
 protected:
  // One row of values for each subject.
  Tri Judge(const Clause& clause) {
    return Holds(clause, rows_.size(),
                 [this](const Fact& fact, size_t subject) -> FactValue {
                   const auto found = rows_[subject].find(fact.name);
                   if (found == rows_[subject].end()) return {};
                   return found->second;
                 });
  }

  std::vector<std::map<std::string, FactValue>> rows_;
  const Fact* const stage_ = FindFact("call.stage");
  const Fact* const training_ = FindFact("call.module_training");
  const Fact* const grad_ = FindFact("ctx.grad_mode");
};

TEST_F(PreconditionTest, Constant) {
  const Clause clause{ClauseKind::kConstant, training_, nullptr, true};
  rows_ = {{{"call.module_training", true}}};
  EXPECT_EQ(Judge(clause), Tri::kYes);
  rows_ = {{{"call.module_training", false}}};
  EXPECT_EQ(Judge(clause), Tri::kNo);
  rows_ = {{}};
  EXPECT_EQ(Judge(clause), Tri::kUnknown);
  rows_ = {{{"call.module_training", true}}, {{"call.module_training", false}}};
  EXPECT_EQ(Judge(clause), Tri::kNo);
}

TEST_F(PreconditionTest, ConsistentAndUnequalCompareSubjects) {
  const Clause same{ClauseKind::kConsistent, stage_, nullptr, {}};
  const Clause different{ClauseKind::kUnequal, stage_, nullptr, {}};
  rows_ = {{{"call.stage", std::string("init")}},
           {{"call.stage", std::string("init")}}};
  EXPECT_EQ(Judge(same), Tri::kYes);
  EXPECT_EQ(Judge(different), Tri::kNo);
  rows_[1]["call.stage"] = std::string("training");
  EXPECT_EQ(Judge(same), Tri::kNo);
  EXPECT_EQ(Judge(different), Tri::kYes);
  rows_[1].clear();
  EXPECT_EQ(Judge(same), Tri::kUnknown);
  // Two that are known decide, whatever the others are.
  rows_ = {{},
           {{"call.stage", std::string("init")}},
           {{"call.stage", std::string("training")}},
           {}};
  EXPECT_EQ(Judge(same), Tri::kNo);
  EXPECT_EQ(Judge(different), Tri::kUnknown);
}

TEST_F(PreconditionTest, ExistsAndEqual) {
  const Clause exists{ClauseKind::kExists, training_, nullptr, {}};
  const Clause equal{ClauseKind::kEqual, training_, grad_, {}};
  rows_ = {{{"call.module_training", true}}};
  EXPECT_EQ(Judge(exists), Tri::kYes);
  EXPECT_EQ(Judge(equal), Tri::kUnknown);
  rows_[0]["ctx.grad_mode"] = true;
  EXPECT_EQ(Judge(equal), Tri::kYes);
  rows_[0]["ctx.grad_mode"] = false;
  EXPECT_EQ(Judge(equal), Tri::kNo);
  rows_ = {{}};
  EXPECT_EQ(Judge(exists), Tri::kNo);
}

TEST_F(PreconditionTest, CanonicalFormDoesNotDependOnTheOrder) {
  const Clause a{ClauseKind::kConstant, training_, nullptr, true};
  const Clause b{ClauseKind::kExists, grad_, nullptr, {}};
  EXPECT_EQ(Precondition({a, b}).ToJson(), Precondition({b, a}).ToJson());
}

TEST_F(PreconditionTest, JsonRoundTrip) {
  const Precondition before({
      {ClauseKind::kConstant, stage_, nullptr, std::string("training")},
      {ClauseKind::kConstant, FindFact("step.backwards"), nullptr, 2.0},
      {ClauseKind::kEqual, training_, grad_, {}},
      {ClauseKind::kExists, grad_, nullptr, {}},
  });
  const auto after = Precondition::FromJson(before.ToJson(), "p");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->ToJson(), before.ToJson());
  EXPECT_EQ(after->Describe(), before.Describe());
}

TEST_F(PreconditionTest, OneOfSeveralListsMustHold) {
  const Clause training{ClauseKind::kConstant, training_, nullptr, true};
  const Clause grad{ClauseKind::kConstant, grad_, nullptr, true};
  const Precondition either(
      std::vector<ClauseList>{ClauseList{training}, ClauseList{grad}});
  std::map<std::string, FactValue> row;
  const auto holds = [&] {
    return either.Holds(1, [&row](const Fact& fact, size_t) -> FactValue {
      const auto found = row.find(fact.name);
      return found == row.end() ? FactValue() : found->second;
    });
  };
  row = {{"call.module_training", false}, {"ctx.grad_mode", true}};
  EXPECT_EQ(holds(), Tri::kYes);
  row["ctx.grad_mode"] = false;
  EXPECT_EQ(holds(), Tri::kNo);
  row.erase("ctx.grad_mode");
  EXPECT_EQ(holds(), Tri::kUnknown);
  row["call.module_training"] = true;
  EXPECT_EQ(holds(), Tri::kYes);
  const auto again = Precondition::FromJson(either.ToJson(), "p");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToJson(), either.ToJson());
  EXPECT_EQ(either.ToJson().at("any").size(), 2u);
  EXPECT_NE(either.Describe().find("; or where "), std::string::npos);
}

struct BadJson {
  const char* json;
  const char* error;
};

TEST(PreconditionJson, ErrorsNameThePath) {
  const BadJson cases[] = {
      {R"([])", "p: not an object"},
      {R"({})", "p.all: missing"},
      {R"({"all": [], "any": []})", "p.any: fewer than two alternatives"},
      {R"({"any": [{"all": []}, {"all": []}], "all": []})",
       "p.all: unknown key"},
      {R"({"any": [{"all": []}, {"all": []}]})", "p.any[0].all: empty"},
      {R"({"all": [3]})", "p.all[0]: not an object"},
      {R"({"all": [{"clause": "exists", "fact": "call.stage"},
                   {"clause": "exists", "fact": "process.pid"}]})",
       "p.all[1].fact: no fact of this version"},
      {R"({"all": [{"clause": "about", "fact": "call.stage"}]})",
       "p.all[0].clause: not a kind of clause of this version"},
      {R"({"all": [{"clause": "constant", "fact": "call.stage",
                    "value": true}]})",
       "p.all[0].value: not of the fact's type"},
      {R"({"all": [{"clause": "constant", "fact": "call.stage"}]})",
       "p.all[0].value: missing"},
      {R"({"all": [{"clause": "exists", "fact": "call.stage",
                    "value": 1}]})",
       "p.all[0].value: unknown key"},
  };
  for (const BadJson& bad : cases) {
    const auto result =
        Precondition::FromJson(nlohmann::json::parse(bad.json), "p");
    ASSERT_FALSE(result.ok()) << bad.json;
    EXPECT_EQ(std::string(result.status().message()), bad.error) << bad.json;
  }
}

}  // namespace
}  // namespace traincheck
