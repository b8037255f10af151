// `completion` as a process, and what a shell makes of it.
#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

// What bash offers for the last of `words`.
std::string Offered(const std::string& words) {
  Process::Options bash;
  bash.command = {"bash", "-c",
                  "source <(ctl/traincheckctl completion bash) || exit 1\n"
                  "COMP_WORDS=(traincheckctl " +
                      words +
                      ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                      "_traincheckctl; echo \"${COMPREPLY[@]}\""};
  const ProcessResult result = RunProcess(bash);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.out;
}

TEST(CompletionTest, OffersCommandsAndOptions) {
  EXPECT_EQ(Offered("vio"), "violations\n");
  EXPECT_EQ(Offered("violations w"), "watch\n");
  EXPECT_EQ(Offered("violations m"), "mark\n");
  EXPECT_EQ(Offered("silences r"), "remove\n");
  EXPECT_EQ(Offered("sets rev"), "review\n");
  EXPECT_EQ(Offered("violations list --li"), "--limit\n");
  EXPECT_EQ(Offered("--server x runs --s"), "--server\n");
  EXPECT_THAT(Offered("run --"), HasSubstr("--fail-on-violation"));
  EXPECT_THAT(Offered("''"), HasSubstr("completion"));
  EXPECT_EQ(Offered("run --collect -- --c"), "\n");  // the training's own
}

// A shell that sources the script does not see how its maker ended.
TEST(CompletionTest, EndsInOrder) {
  const ProcessResult result = RunProcess(Ctl({"completion", "bash"}));
  EXPECT_EQ(result.code, 0) << result.err;
}

TEST(CompletionTest, OtherShellsAreRefused) {
  const ProcessResult result = RunProcess(Ctl({"completion", "tcsh"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.out, Not(HasSubstr("complete")));
}

}  // namespace
}  // namespace traincheck::ctl
