// How many bytes of all streams together may wait for the disk. A disk that
// stands would otherwise let the daemon hold the credit of every stream at
// once, however many there are; relays keep what is not read.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_INGEST_BYTE_BUDGET_H_
#define TRAINCHECK_SERVER_INGEST_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>

namespace traincheck::server {

class ByteBudget {
 public:
  explicit ByteBudget(uint64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  void Take(uint64_t bytes) {
    if ((used_ += bytes) >= limit_) was_used_up_ = true;
  }
  void Return(uint64_t bytes) { used_ -= bytes; }
  // Nothing more is to be read until the disk has taken some.
  bool used_up() const { return used_ >= limit_; }
  uint64_t used() const { return used_; }
  // Was it used up at any time since the last call? Who found it so may wait.
  bool TakeWasUsedUp() {
    const bool was = was_used_up_.exchange(false);
    // Behind the exchange: a Take in between says so itself.
    if (used_up()) was_used_up_ = true;
    return was;
  }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
  std::atomic<bool> was_used_up_ = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_BYTE_BUDGET_H_
