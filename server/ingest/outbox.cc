#include "server/ingest/outbox.h"

namespace traincheck::server {

// Wakes nobody: more bytes that wait can only stop the next read, never start
// one.
void ReplyOutbox::Queued(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  unsynced_bytes_ += bytes;
}

void ReplyOutbox::Welcome(const v1::Welcome& welcome) {
  {
    absl::MutexLock lock(&mutex_);
    welcome_ = welcome;
    next_batch_ = welcome.next_batch();
  }
  wake_();
}

// The store's commit thread calls this once for each batch. Several calls
// between two writes to the wire become one answer (Next).
void ReplyOutbox::Stored(uint64_t next_batch, uint64_t bytes) {
  {
    absl::MutexLock lock(&mutex_);
    next_batch_ = next_batch;
    unsynced_bytes_ -= bytes;
    acknowledge_ = true;
  }
  wake_();
}

// A relay that sends what is stored has not seen the acknowledgement, perhaps
// because the stream before this one broke.
void ReplyOutbox::Repeat() {
  {
    absl::MutexLock lock(&mutex_);
    acknowledge_ = true;
  }
  wake_();
}

// The end of the process is on disk with all of its batches.
void ReplyOutbox::Goodbye() {
  {
    absl::MutexLock lock(&mutex_);
    acknowledge_ = true;
    goodbye_ = true;
  }
  wake_();
}

void ReplyOutbox::Plan(const v1::PlanChange& change) {
  {
    absl::MutexLock lock(&mutex_);
    // Threads that publish plans may come in any order.
    if (change.version() <= plan_.version()) return;
    plan_ = change;
    plan_waits_ = true;
  }
  wake_();
}

// One message at a time, in the order of urgency: the Welcome, the plan, what
// is stored.
std::optional<v1::IngestReply> ReplyOutbox::Next() {
  absl::MutexLock lock(&mutex_);
  v1::IngestReply reply;
  if (welcome_.has_value()) {
    *reply.mutable_welcome() = *welcome_;
    welcome_.reset();
    welcomed_ = true;
    return reply;
  }
  // A relay takes anything else before the Welcome for an error.
  if (!welcomed_) return std::nullopt;
  // Before acknowledgements: a plan holds from a step on that is only a few
  // steps away.
  if (plan_waits_) {
    reply.mutable_plan_change()->Swap(&plan_);
    // The version of what was sent is kept, so that an older plan that comes
    // later is recognised (Plan).
    plan_.set_version(reply.plan_change().version());
    plan_waits_ = false;
    return reply;
  }
  if (!acknowledge_) return std::nullopt;
  reply.mutable_acknowledged()->set_next_batch(next_batch_);
  reply.mutable_acknowledged()->set_goodbye(goodbye_);
  reply.mutable_acknowledged()->set_gather_ms(pace_->gather_ms());
  // One answer stands for all that has become durable since the last one.
  acknowledge_ = false;
  // The stream ends only behind this answer: it says that the end of the
  // process is stored, too.
  finished_ = goodbye_;
  return reply;
}

uint64_t ReplyOutbox::unsynced_bytes() const {
  absl::MutexLock lock(&mutex_);
  return unsynced_bytes_;
}

bool ReplyOutbox::finished() const {
  absl::MutexLock lock(&mutex_);
  return finished_;
}

}  // namespace traincheck::server
