// The varint of the record format and of saved states: seven bits a byte, low
// ones first, the highest bit set in all bytes but the last.
//
// Threads: pure functions.
#ifndef TRAINCHECK_PROTO_VARINT_H_
#define TRAINCHECK_PROTO_VARINT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace traincheck {

inline constexpr int kMaxVarintBytes = 10;

// Writes at most kMaxVarintBytes; the end of what was written.
inline char* PutVarint(uint64_t value, char* to) {
  while (value >= 0x80) {
    *to++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *to++ = static_cast<char>(value);
  return to;
}

// Takes one off the front. False: it is cut off or exceeds 64 bits, and the
// bytes stay as they were.
inline bool TakeVarint(std::string_view* bytes, uint64_t* value) {
  uint64_t result = 0;
  for (size_t i = 0; i < bytes->size() && i < kMaxVarintBytes; ++i) {
    const auto byte = static_cast<uint8_t>((*bytes)[i]);
    if (i == kMaxVarintBytes - 1 && byte > 1) return false;
    result |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes->remove_prefix(i + 1);
      *value = result;
      return true;
    }
  }
  return false;
}

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_VARINT_H_
