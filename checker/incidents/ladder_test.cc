#include "checker/incidents/ladder.h"

#include <gtest/gtest.h>

#include <set>

#include "checker/incidents/families.h"
#include "invariants/facts/fact.h"
#include "invariants/relations/registry.h"

namespace traincheck {
namespace {

// Facts that no rule asks for a value of.
const std::set<std::string> kNoRules = {"var.kind", "var.role"};

TEST(Ladder, EachFactStandsOnARung) {
  for (const auto* facts : {&CallFacts(), &OptimizerFacts(), &LoaderFacts(),
                            &VariableFacts(), &ObservedFacts()}) {
    for (const Fact& fact : *facts) {
      EXPECT_EQ(RungOfFact(fact.name).has_value(), !kNoRules.count(fact.name))
          << fact.name;
    }
  }
}

TEST(Ladder, RungsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int rung = 0; rung <= static_cast<int>(Rung::kTotals); ++rung) {
    names.insert(NameOf(static_cast<Rung>(rung)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Rung::kTotals) + 1);
  EXPECT_EQ(names.count(""), 0u);
}

TEST(Ladder, RungsAreFoundByTheirNames) {
  EXPECT_EQ(RungNamed("setup"), Rung::kSetup);
  EXPECT_EQ(RungNamed("totals"), Rung::kTotals);
  EXPECT_EQ(RungNamed(""), std::nullopt);
  EXPECT_EQ(RungNamed("cellar"), std::nullopt);
}

TEST(Families, EachRelationHasOne) {
  std::set<std::string> covered;
  for (const Family& family : Families()) {
    if (*family.path == '\0') covered.insert(family.relation);
  }
  for (const Relation* relation : Relations()) {
    const std::string name = relation->name();
    EXPECT_EQ(covered.count(name == "TrainCheck" ? "" : name), 1u) << name;
  }
}

TEST(Families, AHeadlineNamesTheCallAndWhatWasSeen) {
  const Family family = {"", "", "", {}, "{call} returns: {seen}", "", ""};
  EXPECT_EQ(HeadlineOf(family, "3 rows", {"torch.optim.adam.Adam.step"}),
            "Adam.step returns: 3 rows");
  EXPECT_EQ(HeadlineOf(family, "3 rows", {"main"}), "main returns: 3 rows");
  EXPECT_EQ(HeadlineOf(family, "3 rows", {}), "a function returns: 3 rows");
}

TEST(Families, HeadlinesHaveRoomInOneLine) {
  const std::string name =
      "torch.nn.parallel.distributed.DistributedDataParallel";
  const std::string seen =
      name + ".forward was called with " + name + " = 3; " +
      "and then again with another value (stage training), " + name;
  for (const Family& family : Families()) {
    for (const std::string& long_seen : {seen, std::string(300, 'x')}) {
      for (const std::string& api :
           {name + ".forward", std::string(300, 'y')}) {
        const std::string headline = HeadlineOf(family, long_seen, {api});
        EXPECT_LE(headline.size(), kMostOfHeadline) << headline;
        EXPECT_EQ(headline.find('{'), std::string::npos) << headline;
        EXPECT_GE(headline.size(), 30u) << headline;
      }
    }
  }
}

TEST(Families, ALongFindingIsCutAfterAClause) {
  const Family family = {"", "", "", {}, "{seen}", "", ""};
  const std::string clause = "the weights are not those of the reference run";
  EXPECT_EQ(HeadlineOf(family,
                       clause + ", although the step before was like "
                                "that of the reference run",
                       {}),
            clause + " ...");
  // Each letter has two bytes; what is cut within one would not be text.
  std::string letters = "x";
  for (int i = 0; i < 60; ++i) letters += "\xC3\xA4";
  const std::string cut = HeadlineOf(family, letters, {});
  EXPECT_LE(cut.size(), kMostOfHeadline);
  EXPECT_EQ(cut.substr(cut.size() - 6), "\xC3\xA4 ...");
}

TEST(Families, WhatASpanLeavesOutIsNotDoneByACall) {
  const auto headline = [](const char* window) {
    const nlohmann::json parameters = {
        {"window",
         {{"kind", window},
          {"function", {{"role", "torch.optim.optimizer.Optimizer.step"}}}}},
        {"event",
         {{"kind", "call"},
          {"function", {{"name", "Net.forward"}}},
          {"binding", "any"}}}};
    const auto rule = FindRelation("EventContain")->Parse(parameters, "");
    EXPECT_TRUE(rule.ok()) << rule.status();
    return std::string(FamilyOf(**rule).headline);
  };
  EXPECT_EQ(headline("span"),
            "a call that the reference runs make is left out: {seen}");
  EXPECT_NE(headline("call"), headline("span"));
}

TEST(Families, OptimizerStateOfReplicasHasItsOwn) {
  const auto rule = FindRelation("Consistent")
                        ->Parse({{"across", "ranks"},
                                 {"of", "optimizer_state.data"},
                                 {"point", "post_step"}},
                                "");
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_STREQ(FamilyOf(**rule).headline,
               "replicas hold different optimizer state: {seen}");
}

}  // namespace
}  // namespace traincheck
