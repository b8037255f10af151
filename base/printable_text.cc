#include "base/printable_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"

namespace traincheck {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// General categories Cc, Cf, Co, Zl and Zp of Unicode 15, in order. The block
// of tags is here as a whole.
constexpr Range kUnprintable[] = {
    {0x0000, 0x001F},     {0x007F, 0x009F},   {0x00AD, 0x00AD},
    {0x0600, 0x0605},     {0x061C, 0x061C},   {0x06DD, 0x06DD},
    {0x070F, 0x070F},     {0x0890, 0x0891},   {0x08E2, 0x08E2},
    {0x180E, 0x180E},     {0x200B, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},     {0xE000, 0xF8FF},   {0xFDD0, 0xFDEF},
    {0xFEFF, 0xFEFF},     {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
    {0x110CD, 0x110CD},   {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A},   {0xE0000, 0xE007F}, {0xF0000, 0xFFFFD},
    {0x100000, 0x10FFFD},
};

// The ranges are in order, so the first one that ends at or behind `c` decides.
bool IsPrintableCharacter(char32_t c) {
  if ((c & 0xFFFE) == 0xFFFE) return false;  // no character in any plane
  const Range* const at = std::lower_bound(
      std::begin(kUnprintable), std::end(kUnprintable), c,
      [](const Range& range, char32_t value) { return range.last < value; });
  return at == std::end(kUnprintable) || c < at->first;
}

struct Character {
  char32_t number;
  size_t bytes;
};

// The character that `utf8` begins with; nothing: it begins with none. Overlong
// forms, surrogates and numbers above U+10FFFF are none.
std::optional<Character> FirstCharacter(std::string_view utf8) {
  const auto lead = static_cast<uint8_t>(utf8[0]);
  if (lead < 0x80) return Character{lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  // 0xC0 and 0xC1 begin overlong forms only, and 0xF5 and above nothing.
  if (lead < 0xC2 || lead > 0xF4 || utf8.size() < bytes) return std::nullopt;
  // A lead byte begins with as many ones as the character has bytes, and a
  // zero.
  char32_t number = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<uint8_t>(utf8[i]);
    if ((next & 0xC0) != 0x80) return std::nullopt;
    number = number << 6 | (next & 0x3F);
  }
  // The least number that needs so many bytes: a smaller one is an overlong
  // form, by which filters could be passed.
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = number >= 0xD800 && number <= 0xDFFF;
  if (number < kLeast[bytes] || surrogate || number > 0x10FFFF) {
    return std::nullopt;
  }
  return Character{number, bytes};
}

// Where the next thing to escape begins, or the end.
size_t PrintablePrefix(std::string_view utf8) {
  size_t size = 0;
  while (size < utf8.size()) {
    const std::optional<Character> next = FirstCharacter(utf8.substr(size));
    if (!next.has_value() || !IsPrintableCharacter(next->number)) break;
    size += next->bytes;
  }
  return size;
}

}  // namespace

// The text is taken in runs of printable characters with one escape between
// two.
std::string EscapeUnprintable(std::string_view utf8) {
  std::string text;
  text.reserve(utf8.size());
  while (true) {
    const size_t printable = PrintablePrefix(utf8);
    text.append(utf8.substr(0, printable));
    utf8.remove_prefix(printable);
    if (utf8.empty()) return text;
    const std::optional<Character> escaped = FirstCharacter(utf8);
    if (escaped.has_value()) {
      absl::StrAppend(&text, "\\u{",
                      absl::Hex(static_cast<uint32_t>(escaped->number)), "}");
    } else {
      absl::StrAppend(&text, "\\x{", absl::Hex(static_cast<uint8_t>(utf8[0])),
                      "}");
    }
    // A byte that is not UTF-8 goes alone: the next one may begin a character.
    utf8.remove_prefix(escaped.has_value() ? escaped->bytes : 1);
  }
}

bool IsPrintable(std::string_view utf8) {
  return PrintablePrefix(utf8) == utf8.size();
}

std::string QuotePrintable(std::string_view utf8) {
  // Before characters are escaped: a backslash of the text becomes two, that of
  // an escape stays one, so that readers tell them apart.
  std::string text = "\"";
  for (const char c : utf8) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return EscapeUnprintable(text) + '"';
}

}  // namespace traincheck
