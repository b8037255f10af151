// Digests of tensors on devices: a State record is written at its point and
// names the numbers of digests that a device is computing; DeferredDigests
// records follow when they have come (RECORD_FORMAT.md). Every number that a
// record names gets such an entry while the process can still write one: that
// of a digest which could not be computed says so.
//
//   DeviceStates::Call call(variables.size());
//   const uint64_t number = call.Add(*view);  // for each tensor
//   ...                                       // the State record
//   call.Begin();                             // one launch a device
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_DEVICE_STATES_H_
#define TRAINCHECK_AGENT_CAPTURE_DEVICE_STATES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/device/device_digester.h"
#include "agent/torch/tensor_view.h"
#include "proto/record_format.h"

namespace traincheck::agent {

class DeviceStates {
 public:
  // This process's. A forked child has one of its own, which is off if its
  // parent's was in use.
  static DeviceStates& Get();

  // False: the setting says not to read devices.
  bool wanted() const { return wanted_; }
  bool cpu_is_device_for_testing() const { return for_testing_; }

  // Writes what has come since. Some nanoseconds where nothing is awaited.
  void Poll() {
    if (!pending_.empty()) PollPending();
  }
  // Writes what comes within so many seconds, and says of the rest that it
  // could not be read. The GIL is released meanwhile.
  void Finish(double seconds);
  // Says so now of all that is awaited.
  void GiveUp();

 private:
  struct Content {
    uint64_t bytes;
    Dtype dtype;
  };
  // The tensors of one launch.
  struct Batch {
    int device = 0;
    uint64_t launch = 0;
    uint64_t first = 0;  // number of the first content
    DigestTables tables;
    std::vector<Content> contents;
  };
  using BatchPointer = std::unique_ptr<Batch>;

 public:
  // The tensors of one state point.
  class Call {
   public:
    // At most two contents for each of so many variables.
    explicit Call(size_t variables) : most_(2 * variables) {}
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // The number under which the digest will come; 0: it never will. On one
    // device they rise by one.
    uint64_t Add(const DeviceView& view);
    // Begins the digests. REQUIRES: the State records are written.
    void Begin();

   private:
    const size_t most_;
    std::vector<BatchPointer> batches_;
  };

 private:
  explicit DeviceStates(bool forked);

  BatchPointer Take(int device, size_t most);
  void Begin(BatchPointer batch);
  void PollPending();
  // `words` null: they could not be read.
  void Write(const Batch& batch, const DigestWords* words);
  void SwitchOff();

  const uint32_t generation_;
  const bool wanted_;
  const bool for_testing_;
  bool said_ = false;  // why it is off
  DeviceDigester digester_;
  uint64_t next_number_ = 1;
  std::vector<BatchPointer> pending_;
  std::vector<BatchPointer> free_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_DEVICE_STATES_H_
