// Reads one byte behind an allocation. Index from outside, so that no
// compiler sees it.
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char**) {
  const size_t size = static_cast<size_t>(argc) * 16;
  char* bytes = static_cast<char*>(std::malloc(size));
  if (bytes == nullptr) return 2;
  std::memset(bytes, 1, size);
  std::printf("%d\n", bytes[size]);
  std::free(bytes);
  return 0;
}
