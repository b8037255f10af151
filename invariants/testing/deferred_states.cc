#include "invariants/testing/deferred_states.h"

#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "proto/record_reader.h"

namespace traincheck {
namespace {

class Deferrer {
 public:
  Deferrer(const DeferOptions& options, std::mt19937_64* random)
      : options_(options), random_(*random) {}

  StoredBatch Defer(const StoredBatch& batch) {
    StoredBatch deferred = batch;
    deferred.plain.clear();
    uint64_t at = 0;
    for (RingSlice& slice : deferred.slices) {
      const uint64_t size = slice.to - slice.from;
      std::string bytes =
          DeferSlice(std::string_view(batch.plain).substr(at, size), &slice);
      at += size;
      // The definition ring holds nothing but definitions.
      if (slice.ring != kDefinitionRing) AppendDue(&slice, &bytes);
      // A slice that has grown moves all later ones of its ring, so that no
      // hole appears where there was none.
      slice.from += moved_[slice.ring];
      slice.to = slice.from + bytes.size();
      moved_[slice.ring] += bytes.size() - size;
      deferred.plain += bytes;
    }
    ++batches_;
    return deferred;
  }

  // What is still to come, in one batch more behind this one.
  void Finish(std::vector<StoredBatch>* batches) {
    if (pending_.empty()) return;
    // Everything is due now.
    batches_ = UINT64_MAX;
    StoredBatch last;
    last.number = batches->back().number + 1;
    RingSlice slice;
    for (const StoredBatch& batch : *batches) {
      for (const RingSlice& other : batch.slices) {
        if (other.ring != kDefinitionRing) slice = {other.ring, other.to, 0, 0};
      }
    }
    for (const StoredBatch& batch : *batches) {
      for (const RingSlice& other : batch.slices) {
        if (other.ring == slice.ring) slice.from = other.to;
      }
    }
    AppendDue(&slice, &last.plain);
    slice.to = slice.from + last.plain.size();
    last.slices.push_back(slice);
    batches->push_back(last);
  }

 private:
  struct Pending {
    DeferredDigest digest;
    uint64_t due;  // with this batch
  };

  bool Draw(uint32_t percent) { return random_() % 100 < percent; }

  std::string DeferSlice(std::string_view bytes, RingSlice* slice) {
    std::string result;
    RecordReader records(bytes);
    while (records.Next()) {
      if (records.type() == RecordType::kState) {
        DeferState(records, &result);
      } else if (records.type() == RecordType::kStatistics &&
                 DeferStatistics(records.Get<StatisticsRecord>())) {
        --slice->records;
      } else {
        result += records.bytes();
      }
    }
    return result;
  }

  // A device says with the digest whether a gradient is finite, and no more.
  // False: the state before has no deferred gradient.
  bool DeferStatistics(const StatisticsRecord& statistics) {
    if (statistics.of != kHasGrad || gradient_ == 0) return false;
    const auto found = pending_.find(gradient_);
    if (found != pending_.end()) {
      const bool finite = statistics.nan_count + statistics.inf_count == 0;
      found->second.digest.flags |=
          finite ? kDeferredIsFinite : kDeferredNotFinite;
    }
    return true;
  }

  void DeferState(const RecordReader& record, std::string* out) {
    struct {
      StateRecord state;
      uint64_t words[3];
    } changed = {record.Get<StateRecord>(), {}};
    size_t words = 0;
    gradient_ = 0;
    const uint64_t first = next_;
    for (const StateContent of : {kHasData, kHasGrad}) {
      if ((record.Get<StateRecord>().content & of) == 0) continue;
      const uint64_t digest =
          of == kHasData ? record.data_digest() : record.grad_digest();
      if (!Draw(options_.percent_deferred)) {
        changed.words[words++] = digest;
        continue;
      }
      const uint8_t zero = of == kHasData ? kDataIsZero : kGradIsZero;
      const bool is_zero = (changed.state.content & zero) != 0;
      changed.state.content &= static_cast<uint8_t>(~(of | zero));
      changed.state.deferred |= of;
      if (of == kHasGrad) gradient_ = next_;
      Put(next_++, {digest, is_zero ? uint64_t{kDeferredIsZero} : 0});
    }
    if (next_ != first) {
      // What was unreadable before is so in truth; the content's own bit stands
      // for the deferred digests from here on (RECORD_FORMAT.md, "State
      // points").
      changed.state.deferred |= changed.state.content & kUnreadable;
      changed.state.content |= kUnreadable;
      changed.words[words++] = first;
    }
    const size_t size = sizeof(StateRecord) + words * sizeof(uint64_t);
    changed.state.header.size_bytes = static_cast<uint16_t>(size);
    out->append(reinterpret_cast<const char*>(&changed), size);
  }

  void Put(uint64_t number, const DeferredDigest& digest) {
    if (Draw(options_.percent_lost)) return;
    pending_[number] = {digest, batches_ + random_() % (options_.max_lag + 1)};
  }

  void AppendDue(RingSlice* slice, std::string* bytes) {
    for (auto at = pending_.begin(); at != pending_.end();) {
      if (at->second.due > batches_) {
        ++at;
        continue;
      }
      struct {
        DeferredDigestsRecord record;
        DeferredDigest digest;
      } came = {{{}, at->first}, at->second.digest};
      came.record.header = {sizeof came,
                            static_cast<uint8_t>(RecordType::kDeferredDigests),
                            0, 0};
      bytes->append(reinterpret_cast<const char*>(&came), sizeof came);
      ++slice->records;
      at = pending_.erase(at);
    }
  }

  const DeferOptions options_;
  std::mt19937_64& random_;
  std::map<uint32_t, uint64_t> moved_;  // by ring
  std::map<uint64_t, Pending> pending_;
  uint64_t next_ = 1;
  uint64_t gradient_ = 0;  // number of the last state's; 0: not deferred
  uint64_t batches_ = 0;
};

}  // namespace

std::vector<StoredBatch> DeferStates(const std::vector<StoredBatch>& batches,
                                     const DeferOptions& options,
                                     std::mt19937_64* random) {
  Deferrer deferrer(options, random);
  std::vector<StoredBatch> deferred;
  for (const StoredBatch& batch : batches) {
    deferred.push_back(deferrer.Defer(batch));
  }
  deferrer.Finish(&deferred);
  return deferred;
}

}  // namespace traincheck
