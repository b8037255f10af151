// A ring that a test fills byte by byte, wrong bytes included: what RingWriter
// would never do. Reader and writer are one process here.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_AGENT_RING_RING_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RING_RING_FOR_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "agent/ring/ring_abi.h"
#include "agent/ring/ring_reader.h"

namespace traincheck::agent {

class RingForTesting {
 public:
  explicit RingForTesting(uint32_t ring, uint64_t capacity_bytes = 64u << 10);
  ~RingForTesting();
  RingForTesting(const RingForTesting&) = delete;
  RingForTesting& operator=(const RingForTesting&) = delete;

  int fd() const { return fd_; }
  RingHeader& header() { return *header_; }
  RingHandover handover() const;
  // REQUIRES: what Map wants; the test fails otherwise.
  std::unique_ptr<RingReader> Map() const;

  // Commits the bytes of one record, padding before it where it would cross
  // the end. False: no room, counted as dropped.
  bool Append(std::string_view record);
  // Commits any bytes where they stand; no padding, no counters.
  void AppendRaw(std::string_view bytes);
  // A Mark record with this value.
  bool AppendMark(uint64_t value);

 private:
  char* At(uint64_t position);

  int fd_;
  RingHeader* header_;
};

// Bytes of a record of `type` with `size` bytes in all, zeros behind the
// header.
std::string RawRecord(uint8_t type, uint16_t size, uint8_t flags = 0);
std::string MarkBytes(uint64_t value, uint8_t kind = 0);
// A StringDef whose text has `length` bytes.
std::string StringDefBytes(uint32_t id, size_t length);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RING_RING_FOR_TESTING_H_
