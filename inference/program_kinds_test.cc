#include "inference/program_kinds.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(ProgramKinds, ProgramsThatShareAModelAreOneKind) {
  ProgramKinds kinds;
  kinds.Add("mnist", {"net"});
  kinds.Add("mnist-sgd", {"net"});
  kinds.Add("gan", {"generator", "discriminator"});
  kinds.Add("lm", {"lstm"});
  EXPECT_EQ(kinds.Count({"mnist"}), 1u);
  EXPECT_EQ(kinds.Count({"mnist", "mnist-sgd"}), 1u);
  EXPECT_EQ(kinds.Count({"mnist", "mnist-sgd", "gan", "lm"}), 3u);
}

TEST(ProgramKinds, AProgramBetweenTwoKindsJoinsThem) {
  ProgramKinds kinds;
  kinds.Add("a", {"x"});
  kinds.Add("b", {"y"});
  kinds.Add("c", {"x", "y"});
  EXPECT_EQ(kinds.Count({"a", "b"}), 2u);
  EXPECT_EQ(kinds.Count({"a", "b", "c"}), 1u);
}

TEST(ProgramKinds, WithoutAModelEachIsItsOwn) {
  const ProgramKinds kinds;
  EXPECT_EQ(kinds.Count({"a", "b"}), 2u);
  EXPECT_EQ(kinds.Count({}), 0u);
}

}  // namespace
}  // namespace traincheck
