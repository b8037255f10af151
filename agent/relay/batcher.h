// Turns what lies in a process's rings into batches.
//
// Owned by the ProcessStream; borrows its rings and its table. Threads:
// externally synchronised. It is told the time.
#ifndef TRAINCHECK_AGENT_RELAY_BATCHER_H_
#define TRAINCHECK_AGENT_RELAY_BATCHER_H_

#include <chrono>
#include <optional>
#include <string>

#include "agent/relay/compressor.h"
#include "agent/relay/definition_table.h"
#include "agent/relay/ring_set.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

class Batcher {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Every definition that is taken goes into the table too.
  Batcher(RingSet* rings, DefinitionTable* table, Compressor* compressor)
      : rings_(rings), table_(table), compressor_(compressor) {}
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // The next batch, without its number, of what the last Refresh of the rings
  // has seen; none if nothing lies there, or too little and for less than
  // `gather`. Call it until there is none.
  std::optional<v1::Batch> Next(TimePoint now,
                                std::chrono::milliseconds gather);

  // Says that the process was alive at `now` and had recorded nothing more.
  // REQUIRES: its rings were empty when they were refreshed, not before `now`.
  v1::Batch Quiet(TimePoint now);

  // The process said that it ends in order.
  bool saw_clean_exit() const { return saw_clean_exit_; }

 private:
  // Takes a ring's records into the batch; false if some do not fit.
  bool TakeRing(RingReader* ring, v1::Batch* batch);

  RingSet* const rings_;
  DefinitionTable* const table_;
  Compressor* const compressor_;
  std::string plain_;  // of the batch in the making
  // When the rings were last seen empty: nothing lies longer than that.
  TimePoint empty_at_{};
  bool saw_clean_exit_ = false;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_BATCHER_H_
