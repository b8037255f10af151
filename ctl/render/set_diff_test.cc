#include "ctl/render/set_diff.h"

#include <gtest/gtest.h>

namespace traincheck::ctl {
namespace {

void Add(const std::string& id, const std::string& scope, v1::SetDetail* set) {
  v1::Invariant* invariant = set->add_invariants();
  invariant->set_id(id);
  invariant->set_relation("Consistent");
  invariant->set_text("rule " + id);
  invariant->set_scope(scope);
}

SetDiff Diff() {
  v1::SetDetail a;
  a.mutable_summary()->set_name("old");
  a.mutable_summary()->set_version(2);
  Add("1", "general", &a);
  Add("2", "general", &a);
  Add("3", "experiment", &a);
  v1::SetDetail b;
  b.mutable_summary()->set_name("new");
  b.mutable_summary()->set_version(1);
  Add("4", "general", &b);
  Add("3", "general", &b);
  Add("2", "general", &b);
  return DiffSets(a, b);
}

TEST(SetDiff, Text) {
  EXPECT_EQ(SetDiffText(Diff()),
            "- old version 2\n"
            "+ new version 1\n"
            "- 1 Consistent (general): rule 1\n"
            "+ 4 Consistent (general): rule 4\n"
            "~ 3 Consistent (experiment, now general): rule 3\n"
            "1 removed, 1 added, 1 of another scope, 1 the same\n");
}

TEST(SetDiff, JsonHasTheSame) {
  const Json json = SetDiffJson(Diff());
  EXPECT_EQ(json["a"]["version"], 2);
  EXPECT_EQ(json["only_a"].size(), 1u);
  EXPECT_EQ(json["only_b"][0]["id"], "4");
  EXPECT_EQ(json["rescoped"][0]["b"], "general");
  EXPECT_EQ(json["same"], 1);
}

TEST(SetDiff, ASetAndItself) {
  v1::SetDetail set;
  Add("1", "general", &set);
  const SetDiff diff = DiffSets(set, set);
  EXPECT_EQ(diff.same, 1u);
  EXPECT_TRUE(diff.only_a.empty() && diff.only_b.empty() &&
              diff.rescoped.empty());
}

}  // namespace
}  // namespace traincheck::ctl
