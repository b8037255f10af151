#include "invariants/trace/archive.h"

#include <cstring>

#include "proto/varint.h"

namespace traincheck {

void Archive::Varint(uint64_t* number) {
  if (!reading_) {
    char bytes[kMaxVarintBytes];
    to_.append(bytes, PutVarint(*number, bytes));
    return;
  }
  *number = 0;
  if (!TakeVarint(&from_, number)) Fail("a number is cut off");
}

// Floating-point numbers go as they lie in memory, so that NaNs and signs of
// zeros come back bit by bit.
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
  // An element takes at least one byte, so a larger number is damage. Refused
  // here, it costs neither memory nor a long loop of defaults.
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
  // So many bytes are left: Size has seen to it, and is 0 after an error.
  text->assign(from_.substr(0, size));
  from_.remove_prefix(size);
}

}  // namespace traincheck
