// A file in a fuzzer's folder in memory: another content for each input.
//
// Owned by the target, and gone with it.
// Threads: one object, one thread.
#ifndef TRAINCHECK_TESTS_FUZZ_MEMORY_FILE_H_
#define TRAINCHECK_TESTS_FUZZ_MEMORY_FILE_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/memory_folder.h"

namespace traincheck {

class MemoryFile {
 public:
  // `folder` must outlive the file.
  MemoryFile(const MemoryFolder& folder, const std::string& name)
      : path_(folder.path() + "/" + name),
        fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    Require(fd_ >= 0);
  }
  ~MemoryFile() {
    close(fd_);
    unlink(path_.c_str());
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void Put(const std::string& text, mode_t mode = 0600) {
    Require(ftruncate(fd_, 0) == 0);
    Require(pwrite(fd_, text.data(), text.size(), 0) ==
            static_cast<ssize_t>(text.size()));
    Require(fchmod(fd_, mode) == 0);
  }

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int fd_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_MEMORY_FILE_H_
