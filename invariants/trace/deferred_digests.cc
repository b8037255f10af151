#include "invariants/trace/deferred_digests.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace traincheck {
namespace {

// Calls `take` with each content of a state record whose digest comes later,
// and with the number under which it comes. The record has the first number;
// those that follow are counted on, data before the gradient.
template <typename Take>
void ForEachNumber(const RecordReader& record, const Take& take) {
  const auto& state = record.Get<StateRecord>();
  if (!IsDeferred(state)) return;
  uint64_t number = record.deferred_number();
  for (const StateContent of : {kHasData, kHasGrad}) {
    if ((state.deferred & of) != 0) take(of, number++);
  }
}

// Only a device that looked at the values sets one of the two flags.
std::optional<bool> IsFinite(uint64_t flags) {
  if ((flags & (kDeferredIsFinite | kDeferredNotFinite)) == 0) {
    return std::nullopt;
  }
  return (flags & kDeferredNotFinite) == 0;
}

// Calls `take` with each record of each slice of a batch, as far as they are
// well-formed. (Whoever reads the batch says what is wrong with it.)
template <typename Take>
void ForEachRecord(const StoredBatch& batch, const Take& take) {
  uint64_t at = 0;
  for (const RingSlice& slice : batch.slices) {
    const uint64_t size = slice.to - slice.from;
    if (slice.to < slice.from || size > batch.plain.size() - at ||
        at % kRecordAlignment != 0) {
      return;
    }
    RecordReader records(std::string_view(batch.plain).substr(at, size));
    while (records.Next()) take(slice, records);
    at += size;
  }
}

// What concerns deferred digests.
template <typename Digests, typename Number>
void Scan(const StoredBatch& batch, const Digests& on_digests,
          const Number& on_number) {
  ForEachRecord(batch, [&](const RingSlice&, const RecordReader& record) {
    if (record.type() == RecordType::kDeferredDigests) {
      on_digests(record);
    } else if (record.type() == RecordType::kState) {
      ForEachNumber(record,
                    [&](StateContent, uint64_t number) { on_number(number); });
    }
  });
}

}  // namespace

std::vector<uint64_t> DeferredDigests::NumbersOf(const StoredBatch& batch) {
  // Only notes in a row count: a process that records something does not hang.
  quiet_ = batch.quiet_us == 0 ? 0 : quiet_ + 1;
  std::vector<uint64_t> numbers;
  Scan(
      batch,
      [&](const RecordReader& record) {
        uint64_t number = record.Get<DeferredDigestsRecord>().first;
        for (const DeferredDigest& came : record.deferred_digests()) {
          // Remembered with the number of the batch, by which ForgetUnused
          // knows what nobody waits for any more.
          digests_[number++] = {came.digest, came.flags, batches_};
        }
      },
      [&](uint64_t number) { numbers.push_back(number); });
  return numbers;
}

bool DeferredDigests::IsBehindLoss(const StoredBatch& batch) {
  bool lost = false;
  for (const RingSlice& slice : batch.slices) {
    if (slice.ring == kDefinitionRing) continue;
    Ring& ring = rings_[slice.ring];
    lost |= slice.from != ring.position;
    ring.position = slice.to;
  }
  ForEachRecord(batch, [&](const RingSlice& slice, const RecordReader& record) {
    if (record.type() != RecordType::kDrops) return;
    uint64_t& dropped = rings_[slice.ring].dropped;
    lost |= record.Get<DropsRecord>().dropped_records > dropped;
    dropped = record.Get<DropsRecord>().dropped_records;
  });
  return lost;
}

void DeferredDigests::FollowLosses(const StoredBatch& batch, Held* held) {
  // A state of another ring may come with the batch behind that of its digest.
  if (lost_ != 0 && lost_ + 1 == batches_) held->lost = lost_;
  if (!IsBehindLoss(batch)) return;
  lost_ = batches_;
  // From the first loss on, so that one that follows does not prolong the wait.
  const auto note = [&](Held& one) {
    if (one.lost == 0) one.lost = batches_;
  };
  std::for_each(held_.begin(), held_.end(), note);
  note(*held);
}

bool DeferredDigests::IsComplete(Held& held) const {
  // A digest stays until its batch was read, so what was found is not looked up
  // again: a held batch costs one look a digest, however many batches come
  // behind it.
  while (held.complete < held.numbers.size() &&
         digests_.contains(held.numbers[held.complete])) {
    ++held.complete;
  }
  return held.complete == held.numbers.size();
}

void DeferredDigests::Hold(const StoredBatch& batch, Held held) {
  held.batch = batch;
  held_bytes_ += batch.plain.size();
  held_.push_back(std::move(held));
}

void DeferredDigests::Forget(const Held& held) {
  // Each number is given once, so no later state asks for it.
  for (const uint64_t number : held.numbers) digests_.erase(number);
}

void DeferredDigests::ForgetUnused() {
  // While a batch waits, any of them may be what a state behind it needs.
  if (!held_.empty()) return;
  // Those of this batch may be awaited by a state of another ring that comes
  // with the next.
  std::erase_if(digests_, [&](const auto& entry) {
    return entry.second.batches < batches_;
  });
}

void DeferredDigests::FindNumbers() {
  held_bytes_ = 0;
  for (Held& held : held_) {
    Scan(
        held.batch, [](const RecordReader&) {},
        [&](uint64_t number) { held.numbers.push_back(number); });
    // The numbers follow from the batch and are not saved. A count beyond them
    // is damage: they are looked up anew.
    if (held.complete > held.numbers.size()) held.complete = 0;
    held_bytes_ += held.batch.plain.size();
  }
}

void DeferredDigests::Complete(const RecordReader& record,
                               StateEvent* event) const {
  const auto& state = record.Get<StateRecord>();
  if (!IsDeferred(state)) return;
  // The record's own bit is set for every deferred digest, for readers that do
  // not know of them. This one says that another content cannot be read in
  // truth.
  bool unreadable = (state.deferred & kUnreadable) != 0;
  ForEachNumber(record, [&](StateContent of, uint64_t number) {
    const auto came = digests_.find(number);
    // What has not come by now never will: the record was dropped, or the batch
    // was given up.
    if (came == digests_.end() ||
        (came->second.flags & kDeferredUnreadable) != 0) {
      unreadable = true;
      return;
    }
    const bool is_zero = (came->second.flags & kDeferredIsZero) != 0;
    event->content |= of;
    if (of == kHasData) {
      event->data = came->second.digest;
      if (is_zero) event->content |= kDataIsZero;
    } else {
      event->grad = came->second.digest;
      if (is_zero) event->content |= kGradIsZero;
      event->grad_is_finite = IsFinite(came->second.flags);
    }
  });
  if (!unreadable) event->content &= static_cast<uint8_t>(~kUnreadable);
}

void DeferredDigests::Fields(Archive& archive) {
  archive(held_, digests_, rings_, batches_, lost_, quiet_);
  if (archive.reading()) FindNumbers();
}

void DeferredDigests::Held::Fields(Archive& archive) {
  archive(batch, complete, lost);
}

void DeferredDigests::Ring::Fields(Archive& archive) {
  archive(position, dropped);
}

void DeferredDigests::Came::Fields(Archive& archive) {
  archive(digest, flags, batches);
}

}  // namespace traincheck
