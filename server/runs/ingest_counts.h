// What came in since the daemon's start, for its metrics. Only grows.
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
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_INGEST_COUNTS_H_
