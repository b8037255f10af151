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
  EXPECT_EQ(table.Render(), "N\na b\\u{1b}[31m\\u{7f}c\n");
}

// CSI as one character, a line turned round, a zero-width space, no UTF-8.
TEST(TableTest, NeitherCanCharactersBeyondAscii) {
  EXPECT_EQ(OneLine("\u009b31mC1"), "\\u{9b}31mC1");
  EXPECT_EQ(OneLine("exe\u202egnp.py"), "exe\\u{202e}gnp.py");
  EXPECT_EQ(OneLine("a\u200bb"), "a\\u{200b}b");
  EXPECT_EQ(OneLine("\x9b"), "\\x{9b}");
  EXPECT_EQ(OneLine("\u00e9 \u4e2d"), "\u00e9 \u4e2d");
}

TEST(TableTest, FoldsTheLastColumnToTheTerminal) {
  Table table({{"ID"}, {"TEXT"}});
  table.AddRow({"i1", "one two three four five six seven eight nine"});
  table.AddRow({"i2", "short"});
  EXPECT_EQ(table.Render(34),
            "ID  TEXT\n"
            "i1  one two three four five six\n"
            "    seven eight nine\n"
            "i2  short\n");
  EXPECT_EQ(table.Render(48), table.Render());
  EXPECT_NE(table.Render(47), table.Render());
}

TEST(TableTest, PutsTheLastColumnBelowWhereThereIsNoRoom) {
  Table table({{"ID"}, {"TEXT"}});
  table.AddRow({"0123456789012345", "one two three four five six seven eight"});
  EXPECT_EQ(table.Render(40),
            "ID                TEXT\n"
            "0123456789012345\n"
            "    one two three four five six seven\n"
            "    eight\n");
}

TEST(TableTest, CutsWordsThatAreTooLongBetweenCharacters) {
  Table table({{"N"}});
  std::string line;
  for (int i = 0; i < 30; ++i) line += "\u00e9";
  table.AddRow({line + line + "x"});
  EXPECT_EQ(table.Render(30), "N\n" + line + "\n" + line + "\nx\n");
}

}  // namespace
}  // namespace traincheck::ctl
