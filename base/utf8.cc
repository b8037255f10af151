#include "base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace traincheck {

namespace {

// Bytes of a character that goes on.
bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

// Length of the character that begins with this byte; 0: none does.
size_t CharacterBytes(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// Overlong forms, surrogates and what lies beyond Unicode begin like
// characters and go on in a range that characters do not have.
bool SecondByteFits(uint8_t lead, uint8_t second) {
  if (lead == 0xe0) return second >= 0xa0;
  if (lead == 0xed) return second < 0xa0;
  if (lead == 0xf0) return second >= 0x90;
  if (lead == 0xf4) return second < 0x90;
  return true;
}

// A whole character with all of its bytes; 0 is the size of none.
bool BeginsWithCharacter(std::string_view bytes, size_t size) {
  if (size == 0 || size > bytes.size()) return false;
  for (size_t i = 1; i < size; ++i) {
    if (!IsContinuation(bytes[i])) return false;
  }
  return size == 1 || SecondByteFits(static_cast<uint8_t>(bytes[0]),
                                     static_cast<uint8_t>(bytes[1]));
}

}  // namespace

std::string ToUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t size = CharacterBytes(static_cast<uint8_t>(bytes[0]));
    const bool whole = BeginsWithCharacter(bytes, size);
    text += whole ? std::string(bytes.substr(0, size)) : "?";
    bytes.remove_prefix(whole ? size : 1);
  }
  return text;
}

}  // namespace traincheck
