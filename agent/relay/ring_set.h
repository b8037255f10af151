// The rings of one process, as the relay holds them.
//
// Owned by the ProcessStream. Threads: externally synchronised.
#ifndef TRAINCHECK_AGENT_RELAY_RING_SET_H_
#define TRAINCHECK_AGENT_RELAY_RING_SET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/relay/batch_trim.h"
#include "agent/relay/ring_coverage.h"
#include "agent/ring/ring_reader.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

class RingSet {
 public:
  // Maps a ring that was handed over. `fd` stays the caller's.
  [[nodiscard]] absl::Status Add(int fd, const RingHandover& handover);

  bool empty() const { return rings_.empty(); }

  // Takes all heads: the main thread's first, the definitions' last, so that
  // every definition that a taken record uses has been taken notice of too.
  void Refresh();

  uint64_t unread_bytes() const;
  // Is some ring half full of what is not released?
  bool under_pressure() const;

  // The definition ring; null until it is handed over.
  RingReader* definitions();
  const RingReader* definitions() const;
  // All other rings, the main thread's first.
  std::vector<RingReader*> events();

  // Leaves out and releases what others have safe already, and takes over
  // their counts; of rings, too, that are handed over later.
  void Cover(const RingCoverages& coverages);
  // Gives the space of slices back.
  void Release(const Slices& slices);
  // Records that the writers committed, by their own counters.
  uint64_t committed_records() const;
  // Records that were read from them, here and before.
  uint64_t read_records() const;
  // Loses everything unread and frees all rings.
  void Discard();

  // Counters of all rings. Final: the process is dead. Its counters may be
  // off by a record that it was just writing; of rings whose records are known
  // from beginning to end, those are the records committed. Not if the server
  // counts otherwise by more than that record: it misses some.
  std::vector<v1::RingReport> Reports(bool final) const;
  // Notes records read from a ring, for the final report.
  void CountRead(uint32_t ring, uint32_t records) {
    rings_[ring].records_read += records;
  }

  // Errors of rings that were quarantined since the last call.
  std::vector<std::string> NewFaults();

 private:
  struct Held {
    std::unique_ptr<RingReader> reader;
    // records_read counts all before the read position: as this relay took
    // them from the first on, or as the server told.
    bool count_known = false;
    bool count_told = false;
    uint64_t records_read = 0;
    bool fault_told = false;
  };

  static void Apply(const RingCoverage& coverage, Held* held);

  // By ring number: the definitions, the main thread, the others.
  std::map<uint32_t, Held> rings_;
  RingCoverages coverages_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_RING_SET_H_
