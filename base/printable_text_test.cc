#include "base/printable_text.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(EscapeUnprintable, LeavesWhatIsPrintable) {
  for (const char* text :
       {"", "train.py", "a b", "größe", "数据", "\U0001F600", "a\\b\"c",
        "\u00A0", "\uFFFD", "\u0606", "\u0905\u093f"}) {
    EXPECT_EQ(EscapeUnprintable(text), text);
    EXPECT_TRUE(IsPrintable(text)) << text;
  }
}

TEST(EscapeUnprintable, NamesControlsOfBothKinds) {
  EXPECT_EQ(EscapeUnprintable("a\nb\tc\x7f"), "a\\u{a}b\\u{9}c\\u{7f}");
  EXPECT_EQ(EscapeUnprintable("\x1b[31m"), "\\u{1b}[31m");
  EXPECT_EQ(EscapeUnprintable("\u009b31mC1"), "\\u{9b}31mC1");
  EXPECT_EQ(EscapeUnprintable(std::string_view("\0x", 2)), "\\u{0}x");
}

TEST(EscapeUnprintable, NamesWhatTurnsOrHidesText) {
  EXPECT_EQ(EscapeUnprintable("\u202egnp.py"), "\\u{202e}gnp.py");
  EXPECT_EQ(EscapeUnprintable("a\u200bb\u00adc\ufeff"),
            "a\\u{200b}b\\u{ad}c\\u{feff}");
  EXPECT_EQ(EscapeUnprintable("\u2028\u2029\u2066\u2069"),
            "\\u{2028}\\u{2029}\\u{2066}\\u{2069}");
  EXPECT_EQ(EscapeUnprintable("\U000E0041\U0010FFFF\uE000"),
            "\\u{e0041}\\u{10ffff}\\u{e000}");
}

TEST(EscapeUnprintable, NamesBytesThatAreNoUtf8) {
  EXPECT_EQ(EscapeUnprintable("\x9b"
                              "a"),
            "\\x{9b}a");
  EXPECT_EQ(EscapeUnprintable("\xe2\x82"), "\\x{e2}\\x{82}");  // cut off
  // Overlong newline, surrogate, above Unicode.
  EXPECT_EQ(EscapeUnprintable("\xc0\x8a"), "\\x{c0}\\x{8a}");
  EXPECT_EQ(EscapeUnprintable("\xed\xa0\x80"), "\\x{ed}\\x{a0}\\x{80}");
  EXPECT_EQ(EscapeUnprintable("\xf4\x90\x80\x80"),
            "\\x{f4}\\x{90}\\x{80}\\x{80}");
  EXPECT_EQ(EscapeUnprintable("\xe0\x80\x8a"), "\\x{e0}\\x{80}\\x{8a}");
}

TEST(EscapeUnprintable, TwiceIsOnce) {
  const std::string once = EscapeUnprintable("a\n\u202e\xff\\u{9b}");
  EXPECT_EQ(EscapeUnprintable(once), once);
  EXPECT_TRUE(IsPrintable(once));
  EXPECT_FALSE(IsPrintable("a\n"));
}

TEST(QuotePrintable, AValueCannotEndEarly) {
  EXPECT_EQ(QuotePrintable("train.py"), "\"train.py\"");
  EXPECT_EQ(QuotePrintable("x\" run=\"other"), "\"x\\\" run=\\\"other\"");
  EXPECT_EQ(QuotePrintable("ends\\"), "\"ends\\\\\"");
  EXPECT_EQ(QuotePrintable("a\nb"), "\"a\\u{a}b\"");
}

}  // namespace
}  // namespace traincheck
