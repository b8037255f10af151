// Adds beyond INT_MAX.
#include <climits>
#include <cstdio>

int main(int argc, char**) {
  int value = INT_MAX - 1;
  value += argc + 1;
  std::printf("%d\n", value);
  return 0;
}
