#include "server/out_of_memory.h"

#include <unistd.h>

#include <cstddef>
#include <exception>
#include <vector>

#include "base/sanitized.h"
#include "gtest/gtest.h"

namespace traincheck::server {
namespace {

// More than an address space has room for.
void AllocateTooMuch() { std::vector<char>(size_t{1} << 50).back() = 1; }

TEST(OutOfMemory, NobodyMayCatchIt) {
  if (kSanitized) GTEST_SKIP() << "its allocator ends the process by itself";
  const auto act = [] {
    EndWhenOutOfMemory();
    try {
      AllocateTooMuch();
    } catch (const std::exception&) {
      // What gRPC does around callbacks.
    }
    _exit(0);
  };
  EXPECT_EXIT(act(), testing::ExitedWithCode(1), "out of memory.*start it");
}

}  // namespace
}  // namespace traincheck::server
