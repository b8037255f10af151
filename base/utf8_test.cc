#include "base/utf8.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(Utf8, WholeCharactersStay) {
  for (const std::string text :
       {"", "plain", "caf\xc3\xa9", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ToUtf8(text), text);
  }
  EXPECT_EQ(ToUtf8(std::string("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Utf8, BytesThatAreNotCharactersBecomeQuestionMarks) {
  EXPECT_EQ(ToUtf8("\x80z"), "?z");
  EXPECT_EQ(ToUtf8("\xff\xc1z"), "??z");
  EXPECT_EQ(ToUtf8("\xc3(z"), "?(z");
}

TEST(Utf8, CutOffAtTheEnd) {
  EXPECT_EQ(ToUtf8("caf\xc3"), "caf?");
  EXPECT_EQ(ToUtf8("\xe2\x82"), "??");
  EXPECT_EQ(ToUtf8("\xf0\x90\x80"), "???");
}

TEST(Utf8, OverlongFormsAndWhatLiesOutsideUnicode) {
  EXPECT_EQ(ToUtf8("\xc0\x80"), "??");              // overlong
  EXPECT_EQ(ToUtf8("\xe0\x9f\xbf"), "???");         // overlong
  EXPECT_EQ(ToUtf8("\xf0\x8f\xbf\xbf"), "????");    // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), "???");         // a surrogate
  EXPECT_EQ(ToUtf8("\xf4\x90\x80\x80"), "????");    // above U+10FFFF
  EXPECT_EQ(ToUtf8("\xf5\x80\x80\x80z"), "????z");  // likewise
}

}  // namespace
}  // namespace traincheck
