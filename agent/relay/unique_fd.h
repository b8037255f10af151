// Owns a file descriptor.
#ifndef TRAINCHECK_AGENT_RELAY_UNIQUE_FD_H_
#define TRAINCHECK_AGENT_RELAY_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace traincheck::agent {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_UNIQUE_FD_H_
