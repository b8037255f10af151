// What one stream may say to its relay, as the store makes it true.
//
// Threads: safe on any thread; `wake` is called without the lock.
#ifndef TRAINCHECK_SERVER_INGEST_OUTBOX_H_
#define TRAINCHECK_SERVER_INGEST_OUTBOX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/ingest/batch_pace.h"

namespace traincheck::server {

class ReplyOutbox {
 public:
  ReplyOutbox(std::shared_ptr<const BatchPace> pace, std::function<void()> wake)
      : pace_(std::move(pace)), wake_(std::move(wake)) {}

  // `bytes` of payload were queued for the disk.
  void Queued(uint64_t bytes);
  void Welcome(const v1::Welcome& welcome);
  // All batches below next_batch are durable, of them `bytes` since the last
  // call.
  void Stored(uint64_t next_batch, uint64_t bytes);
  // Say again where we are.
  void Repeat();
  void Goodbye();
  // The relay is to be told, unless it was told of a newer one.
  void Plan(const v1::PlanChange& change);

  std::optional<v1::IngestReply> Next();
  uint64_t unsynced_bytes() const;
  bool finished() const;

 private:
  mutable absl::Mutex mutex_;
  const std::shared_ptr<const BatchPace> pace_;
  const std::function<void()> wake_;
  std::optional<v1::Welcome> welcome_ ABSL_GUARDED_BY(mutex_);
  bool welcomed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_batch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t unsynced_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Its version is the newest of all; told once.
  v1::PlanChange plan_ ABSL_GUARDED_BY(mutex_);
  bool plan_waits_ ABSL_GUARDED_BY(mutex_) = false;
  bool acknowledge_ ABSL_GUARDED_BY(mutex_) = false;
  bool goodbye_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_OUTBOX_H_
