// Shifts a 32-bit number by 32.
#include <cstdint>
#include <cstdio>

int main(int argc, char**) {
  const uint32_t value = 1;
  std::printf("%u\n", value << (31 + argc));
  return 0;
}
