// Writes a whole text to an open file.
//
// Threads: as write().
#ifndef TRAINCHECK_BASE_WRITE_ALL_H_
#define TRAINCHECK_BASE_WRITE_ALL_H_

#include <unistd.h>

#include <cerrno>

#include "absl/strings/string_view.h"

namespace traincheck {

// False, with errno, if the file does not take all of it. A disk that is full
// takes the beginning, and says why only to who asks for the rest.
inline bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = ENOSPC;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_WRITE_ALL_H_
