// Two threads add to one number without a lock.
#include <cstdio>
#include <thread>

int main() {
  int sum = 0;
  const auto add = [&sum] {
    for (int i = 0; i < 1000; ++i) ++sum;
  };
  std::thread other(add);
  add();
  other.join();
  std::printf("%d\n", sum);
  return 0;
}
