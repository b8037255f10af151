// Cuts a fuzzer's bytes into the numbers and texts that a target wants. What
// is not there any more reads as zeros.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_TESTS_FUZZ_FUZZ_INPUT_H_
#define TRAINCHECK_TESTS_FUZZ_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace traincheck {

// Ends the process, so that the fuzzer keeps the input.
inline void Require(bool holds) {
  if (!holds) __builtin_trap();
}

class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size)
      : bytes_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return bytes_.empty(); }

  template <typename T>
  T Number() {
    T value = 0;
    const size_t size = std::min(sizeof value, bytes_.size());
    std::memcpy(&value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return value;
  }
  uint8_t Byte() { return Number<uint8_t>(); }

  // At most `size` bytes: fewer where the input ends.
  std::string Bytes(size_t size) {
    const std::string bytes(bytes_.substr(0, size));
    bytes_.remove_prefix(bytes.size());
    return bytes;
  }
  std::string Rest() { return Bytes(bytes_.size()); }

 private:
  std::string_view bytes_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_FUZZ_INPUT_H_
