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

  void Take(uint64_t bytes) { used_ += bytes; }
  void Return(uint64_t bytes) { used_ -= bytes; }
  // Nothing more is to be read until the disk has taken some.
  bool used_up() const { return used_ >= limit_; }
  uint64_t used() const { return used_; }

 private:
  const uint64_t limit_;
  std::atomic<uint64_t> used_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_BYTE_BUDGET_H_
