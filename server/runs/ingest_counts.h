// What came in since the daemon's start, for its metrics. All but what waits
// only grows, also when runs end or are deleted.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_RUNS_INGEST_COUNTS_H_
#define TRAINCHECK_SERVER_RUNS_INGEST_COUNTS_H_

#include <atomic>
#include <cstdint>

namespace traincheck::server {

struct IngestCounts {
  std::atomic<uint64_t> stored_batches = 0;
  std::atomic<uint64_t> duplicate_batches = 0;
  std::atomic<uint64_t> quarantined_batches = 0;
  // Of stored batches.
  std::atomic<uint64_t> bytes = 0;
  std::atomic<uint64_t> records = 0;
  // Batches that are durable by now, and how long that took from when they
  // came, added up: sum and count of a Prometheus summary.
  std::atomic<uint64_t> durable_batches = 0;
  std::atomic<uint64_t> durable_us = 0;
  // Taken, and not durable yet: the queue before the disk.
  std::atomic<uint64_t> waiting_batches = 0;
  std::atomic<uint64_t> waiting_bytes = 0;
  // Records that agents could not write, as far as they have said so.
  std::atomic<uint64_t> dropped_records = 0;
  // Records that were written and had not come when their process ended.
  std::atomic<uint64_t> lost_records = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_INGEST_COUNTS_H_
