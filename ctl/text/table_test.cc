#include "ctl/text/table.h"

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

TEST(TableTest, AlignsColumnsWithoutTrailingSpaces) {
  Table table({{"ID"}, {"RECORDS", Align::kRight}, {"TEXT"}});
  table.AddRow({"cnn-1", "7", "short"});
  table.AddRow({"a", "123456789", ""});
  EXPECT_EQ(table.Render(),
            "ID       RECORDS  TEXT\n"
            "cnn-1          7  short\n"
            "a      123456789\n");
}

TEST(TableTest, AnEmptyTableIsItsTitles) {
  Table table({{"A"}, {"B", Align::kRight}});
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(table.Render(), "A  B\n");
}

TEST(TableTest, CountsCharactersNotBytes) {
  Table table({{"N"}, {"X"}});
  table.AddRow({"\xc3\xa9\xc3\xa9", "1"});
  table.AddRow({"abc", "2"});
  EXPECT_EQ(table.Render(), "N    X\n\xc3\xa9\xc3\xa9   1\nabc  2\n");
}

TEST(TableTest, ForeignTextCannotBreakLinesOrSteerTheTerminal) {
  Table table({{"N"}});
  table.AddRow(
      {"a\nb\x1b[31m\x7f"
       "c"});
  EXPECT_EQ(table.Render(), "N\na b [31m c\n");
}

}  // namespace
}  // namespace traincheck::ctl
