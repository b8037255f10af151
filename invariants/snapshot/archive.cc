#include "invariants/snapshot/archive.h"

#include <cstring>

namespace traincheck {

namespace {

constexpr int kMaxVarintBytes = 10;

}  // namespace

void Archive::Varint(uint64_t* number) {
  if (!reading_) {
    uint64_t rest = *number;
    for (; rest >= 0x80; rest >>= 7) {
      to_.push_back(static_cast<char>(rest | 0x80));
    }
    to_.push_back(static_cast<char>(rest));
    return;
  }
  *number = 0;
  for (int i = 0; i < kMaxVarintBytes && !from_.empty(); ++i) {
    const auto byte = static_cast<uint8_t>(from_.front());
    from_.remove_prefix(1);
    *number |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) return;
  }
  *number = 0;
  Fail("a number is cut off");
}

void Archive::Raw(void* value, size_t size) {
  if (!reading_) {
    to_.append(static_cast<const char*>(value), size);
    return;
  }
  if (from_.size() < size) {
    std::memset(value, 0, size);
    return Fail("a value is cut off");
  }
  std::memcpy(value, from_.data(), size);
  from_.remove_prefix(size);
}

size_t Archive::Size(size_t size) {
  uint64_t number = size;
  Varint(&number);
  if (reading_ && number > from_.size()) {
    Fail("a list is longer than what is left");
    return 0;
  }
  return number;
}

void Archive::One(std::string* text) {
  const size_t size = Size(text->size());
  if (!reading_) {
    to_.append(*text);
    return;
  }
  text->assign(from_.substr(0, size));
  from_.remove_prefix(size);
}

}  // namespace traincheck
