#include "ctl/text/shell_quote.h"

#include <cstdio>

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

std::string ThroughShell(const std::string& text) {
  const std::string command = "printf %s " + ShellQuote(text);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::string out;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) out.push_back(c);
  pclose(pipe);
  return out;
}

TEST(ShellQuoteTest, LeavesPlainWordsAlone) {
  EXPECT_EQ(ShellQuote("/usr/lib/libx.so:/opt/a-b_c.so"),
            "/usr/lib/libx.so:/opt/a-b_c.so");
  EXPECT_EQ(ShellQuote("127.0.0.1:7471"), "127.0.0.1:7471");
}

TEST(ShellQuoteTest, QuotesWhatShellsInterpret) {
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("a b"), "'a b'");
  EXPECT_EQ(ShellQuote("it's"), "'it'\\''s'");
}

TEST(ShellQuoteTest, AShellReadsEveryTextBack) {
  for (const char* text :
       {"", "a b", "it's", "$HOME", "`id`", "a;b|c&d", "~", "*", "x\ny", "\\",
        "\"", "#c", "=x", "!x", "[::1]:7471", "\xc3\xa9"}) {
    EXPECT_EQ(ThroughShell(text), text);
  }
}

}  // namespace
}  // namespace traincheck::ctl
