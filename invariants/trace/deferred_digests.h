// Joins states with the digests that come after them. A device computes digests
// while the program goes on, so a State record may stand in the store before
// its digest does. Batches are held back until all digests that their states
// wait for have come; what reads them then sees the events of a process whose
// digests are immediate.
//
// A digest that does not come is unreadable: those of a batch that is held when
// the process ends, when kMaxHeldBytes wait, or when the process has been quiet
// for half a minute (it may hang, and people are to hear of it). Where records
// are missing the digest may be among them: what waits then is given up a few
// batches later. Digests do not come in the order of their numbers (a process
// may have several devices), so a later one says nothing of those before it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_DEFERRED_DIGESTS_H_
#define TRAINCHECK_INVARIANTS_TRACE_DEFERRED_DIGESTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"
#include "invariants/trace/stored_batch.h"
#include "proto/record_reader.h"

namespace traincheck {

class DeferredDigests {
 public:
  // Records held of one process: the steps that a device is behind, and far
  // more.
  static constexpr size_t kMaxHeldBytes = 8u << 20;
  // Batches in a row that say that it is quiet; they come every ten seconds.
  static constexpr int kMaxQuiet = 3;
  // Batches that come after missing records, while the device still computes
  // what is not among these.
  static constexpr uint64_t kMaxBehindLoss = 16;

  // Calls `read(const StoredBatch&)` for each batch that is complete now, in
  // order. Nothing is copied where no digest is waited for.
  template <typename Read>
  void Consume(const StoredBatch& batch, const Read& read) {
    ++batches_;
    Held held{{}, NumbersOf(batch)};
    FollowLosses(batch, &held);
    if (held_.empty() && IsComplete(held)) {
      read(batch);
      Forget(held);
    } else {
      Hold(batch, std::move(held));
      while (!held_.empty() && (gives_up() || IsComplete(held_.front()))) {
        ReadFirst(read);
      }
    }
    ForgetUnused();
  }
  // No more batches will come.
  template <typename Read>
  void End(const Read& read) {
    while (!held_.empty()) ReadFirst(read);
  }

  // Puts into an event what has come of the digests that its record defers.
  // REQUIRES: the record is one of the batch that is being read.
  void Complete(const RecordReader& record, StateEvent* event) const;

  void Fields(Archive& archive);

 private:
  struct Held {
    StoredBatch batch;
    std::vector<uint64_t> numbers;  // of the digests that it needs
    size_t complete = 0;            // so many of them are known to be there
    uint64_t lost = 0;  // the batch that says that some may be lost; 0: none

    void Fields(Archive& archive);
  };
  struct Ring {
    uint64_t position = 0;
    uint64_t dropped = 0;  // records so far

    void Fields(Archive& archive);
  };
  struct Came {
    uint64_t digest = 0;
    uint64_t flags = 0;    // DeferredFlag
    uint64_t batches = 0;  // with which batch it came

    void Fields(Archive& archive);
  };

  // Of the digests that a batch waits for. Takes over those that it brings.
  std::vector<uint64_t> NumbersOf(const StoredBatch& batch);
  bool IsComplete(Held& held) const;
  void Hold(const StoredBatch& batch, Held held);
  bool gives_up() const {
    const uint64_t lost = held_.front().lost;
    return held_bytes_ > kMaxHeldBytes || quiet_ >= kMaxQuiet ||
           (lost != 0 && batches_ - lost >= kMaxBehindLoss);
  }
  void FollowLosses(const StoredBatch& batch, Held* held);
  // Are records missing before the batch, or in it? Those of definitions bring
  // no digest.
  bool IsBehindLoss(const StoredBatch& batch);
  template <typename Read>
  void ReadFirst(const Read& read) {
    const Held held = std::move(held_.front());
    held_.erase(held_.begin());
    held_bytes_ -= held.batch.plain.size();
    read(held.batch);
    Forget(held);
  }
  void Forget(const Held& held);
  // Those that nobody waits for: their states are missing, or were given up.
  void ForgetUnused();
  void FindNumbers();

  std::vector<Held> held_;
  size_t held_bytes_ = 0;
  std::map<uint64_t, Came> digests_;
  std::map<uint32_t, Ring> rings_;
  uint64_t batches_ = 0;
  uint64_t lost_ = 0;  // the last batch behind a loss; 0: none
  int quiet_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_DEFERRED_DIGESTS_H_
