// Digests of tensors on devices: a State record is written at its point and
// names the numbers of digests that a device is computing; DeferredDigests
// records follow when they have come (RECORD_FORMAT.md). Every number that a
// record names gets such an entry while the process can still write one: that
// of a digest which could not be computed says so.
//
// And copies of small tensors, for the hooks that look at values: they come as
// late as digests do.
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
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

  struct Copies {
    uint64_t number = 0;
    bool came = false;                  // else they never will
    std::vector<std::string> contents;  // of each tensor, in logical order
  };
  // Begins copies of tensors of one device, and returns their number. 0: they
  // cannot be copied (now), or have more than kMaxCopied bytes together.
  uint64_t Copy(const std::vector<DeviceView>& views);
  // Those that have come since, or never will.
  std::vector<Copies> TakeCopies() { return std::exchange(copies_, {}); }

  // What is begun from now on belongs to another period. Returns the number of
  // the one that has ended; they rise by one.
  uint64_t EndPeriod() { return period_++; }
  // For how long devices worked on what was begun up to the end of the period,
  // and was not taken before: time that the training loses, as it loses that of
  // the processor. nullopt: they have not ended yet.
  std::optional<uint64_t> TakeTicks(uint64_t period);

 private:
  struct Content {
    uint64_t bytes;
    Dtype dtype;
  };
  // The tensors of one launch.
  struct Batch {
    int device = 0;
    bool is_copied = false;
    uint64_t launch = 0;
    uint64_t period = 0;  // in which it was begun
    uint64_t first = 0;   // number of the first content
    DigestTables tables;
    std::vector<Content> contents;
  };
  using BatchPointer = std::unique_ptr<Batch>;
  // What was begun in one.
  struct Period {
    unsigned pending = 0;  // launches
    uint64_t ns = 0;       // that those which have ended took
  };
  // Periods that nobody has asked for; older ones are forgotten.
  static constexpr size_t kMaxPeriods = 1024;

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
  // False: refused, and said so.
  bool Begin(BatchPointer batch);
  void PollPending();
  // Of a batch that was begun and is pending no more; 0: it never ended.
  void CountTime(const Batch& batch, uint64_t ns);
  // Ends the batch. Null: it could not be read.
  void End(BatchPointer batch, const DeviceDigester::Result* result);
  void Write(const Batch& batch, const DigestWords* words);
  void KeepCopies(const Batch& batch, const DeviceWord* words);
  void SwitchOff();

  const uint32_t generation_;
  const bool wanted_;
  const bool for_testing_;
  bool said_ = false;  // why it is off
  DeviceDigester digester_;
  uint64_t next_number_ = 1;
  uint64_t period_ = 1;
  std::map<uint64_t, Period> periods_;  // those with launches, by number
  std::vector<BatchPointer> pending_;
  std::vector<BatchPointer> free_;
  std::vector<Copies> copies_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_DEVICE_STATES_H_
