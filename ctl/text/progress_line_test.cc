#include "ctl/text/progress_line.h"

#include <sstream>

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

TEST(ProgressLineTest, OneLineAStageInALogFile) {
  std::ostringstream out;
  {
    ProgressLine line(&out, false);
    line.Update("load", 0.1);
    line.Update("load", 0.2);
    line.Update("learn", 0.5);
  }
  EXPECT_EQ(out.str(), "load\nlearn\n");
}

TEST(ProgressLineTest, RedrawsOnATerminalAndClearsAtTheEnd) {
  std::ostringstream out;
  {
    ProgressLine line(&out, true);
    line.Update("load", 0.5);
    line.Update("load", 7);
  }
  EXPECT_EQ(out.str(),
            "\r\x1b[K[###############               ]  50% load"
            "\r\x1b[K[##############################] 100% load"
            "\r\x1b[K");
}

}  // namespace
}  // namespace traincheck::ctl
