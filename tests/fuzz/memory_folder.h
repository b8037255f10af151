// A folder in memory for one fuzzer process; it goes with it.
//
// Owned by the target. Whoever puts files there removes them.
// Threads: one object, one thread.
#ifndef TRAINCHECK_TESTS_FUZZ_MEMORY_FOLDER_H_
#define TRAINCHECK_TESTS_FUZZ_MEMORY_FOLDER_H_

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/fuzz_input.h"

namespace traincheck {

class MemoryFolder {
 public:
  MemoryFolder() {
    char name[] = "/dev/shm/traincheck-fuzzer-XXXXXX";
    Require(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~MemoryFolder() { rmdir(path_.c_str()); }
  MemoryFolder(const MemoryFolder&) = delete;
  MemoryFolder& operator=(const MemoryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_MEMORY_FOLDER_H_
