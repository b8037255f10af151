// Where launches of one device leave their results: slots, each with tables on
// the device, their copy in pinned memory, and results and copied tensors
// there. A slot belongs to one launch from its begin until the host has seen
// the launch's number.
//
//   free --Take--> busy --the kernel writes its number--> done --Release-->
//   free
//
// Memory is never given back while the process lives, because freeing it would
// wait for the device. It is allocated in relaxed capture mode, so that no
// capture of the user's notices, and past torch's allocator.
//
// Threads: externally synchronised.
#ifndef TRAINCHECK_AGENT_DEVICE_DIGEST_SLOTS_H_
#define TRAINCHECK_AGENT_DEVICE_DIGEST_SLOTS_H_

#include <array>
#include <cstdint>

#include "agent/device/cuda_driver.h"
#include "agent/device/digest_layout.h"
#include "agent/device/digest_tables.h"

namespace traincheck::agent {

// While it lives, allocations of this thread break no capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaDriver& driver) : driver_(driver) {
    driver_.ThreadExchangeStreamCaptureMode(&mode_);
  }
  ~RelaxedCapture() { driver_.ThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaDriver& driver_;
  int mode_ = CudaDriver::kRelaxedCapture;
};

struct DigestSlot {
  // Room in the tables; 0: it has no memory yet.
  unsigned max_items = 0;
  unsigned max_dims = 0;
  unsigned max_copied = 0;  // words
  // On the device: items, dims, sums, progress.
  DeviceWord device = 0;
  // In pinned memory: the same tables, sums, done, copied tensors; as the
  // device sees it.
  char* host = nullptr;
  DeviceWord host_on_device = 0;
  // Of the tables that the device has.
  unsigned items = 0;
  unsigned dims = 0;
  // Of the launch that it belongs to; 0: free.
  uint64_t number = 0;
  bool is_new = true;  // its memory has never been cleared

  size_t items_at() const { return 0; }
  size_t dims_at() const { return max_items * sizeof(DigestItem); }
  size_t sums_at() const { return dims_at() + max_dims * sizeof(DigestDim); }
  size_t end_at() const { return sums_at() + max_items * sizeof(DigestWords); }
  size_t bytes() const { return end_at() + sizeof(DigestDone); }
  size_t copies_at() const { return bytes(); }
  size_t host_bytes() const {
    return copies_at() + max_copied * sizeof(DeviceWord);
  }

  const DeviceWord* copies() const {
    return reinterpret_cast<const DeviceWord*>(host + copies_at());
  }
  const DigestWords* sums() const {
    return reinterpret_cast<const DigestWords*>(host + sums_at());
  }
  const DigestDone* done() const {
    return reinterpret_cast<const DigestDone*>(host + end_at());
  }
};
static_assert(sizeof(DigestDone) == sizeof(DigestProgress));

class DigestSlots {
 public:
  static constexpr unsigned kSlots = 64;

  // A free one with room for the tables, if possible one whose device has them
  // already. Null with *error 0: all are busy. Null with another: the driver's.
  // REQUIRES: the device's context is current.
  DigestSlot* Take(const CudaDriver& driver, const DigestTables& tables,
                   CudaDriver::Result* error);

  std::array<DigestSlot, kSlots>& all() { return slots_; }

 private:
  std::array<DigestSlot, kSlots> slots_;
};

// Are these the tables that the slot's device has?
bool HasTables(const DigestSlot& slot, const DigestTables& tables);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_DEVICE_DIGEST_SLOTS_H_
