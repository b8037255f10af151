#include "server/out_of_memory.h"

#include <unistd.h>

#include <new>
#include <string_view>

namespace traincheck::server {
namespace {

constexpr int kExitFailed = 1;
constexpr std::string_view kLastWords =
    "traincheckd: out of memory, ends at once; what was acknowledged is stored "
    "and relays keep the rest: start it again, with more memory\n";

[[noreturn]] void End() {
  // Nothing here may allocate.
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, kLastWords.data(), kLastWords.size());
  // Without destructors and handlers of exit, which may allocate.
  _exit(kExitFailed);
}

}  // namespace

void EndWhenOutOfMemory() { std::set_new_handler(End); }

}  // namespace traincheck::server
