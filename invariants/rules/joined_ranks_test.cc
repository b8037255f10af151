#include "invariants/rules/joined_ranks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace traincheck {
namespace {

using Texts = std::vector<std::string>;

TEST(Writers, AreOneTextAndBack) {
  const WriterParts step = PartsOf(
      TextOf({"SGD.step", "train.py:7", {"train.py:9 in fit", "train.py:12"}}));
  EXPECT_EQ(step.function, "SGD.step");
  EXPECT_EQ(step.site, "train.py:7");
  EXPECT_EQ(step.callers, (Texts{"train.py:9 in fit", "train.py:12"}));
  const WriterParts unknown = PartsOf(TextOf({}));
  EXPECT_EQ(unknown.function, "");
  EXPECT_EQ(unknown.site, "");
  EXPECT_EQ(unknown.callers, Texts{});
}

TEST(Writers, GiveAFindingTheCallersOfItsFirstSite) {
  Finding finding;
  AddWriter({"copy_", "", {}}, &finding);
  EXPECT_EQ(finding.callers, Texts{});
  AddWriter({"SGD.step", "train.py:7", {"train.py:9"}}, &finding);
  AddWriter({"Adam.step", "other.py:1", {"other.py:2"}}, &finding);
  EXPECT_EQ(finding.apis, (Texts{"copy_", "SGD.step", "Adam.step"}));
  EXPECT_EQ(finding.sites, (Texts{"train.py:7", "other.py:1"}));
  EXPECT_EQ(finding.callers, Texts{"train.py:9"});
}

}  // namespace
}  // namespace traincheck
