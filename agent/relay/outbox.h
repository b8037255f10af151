// The batches of one process from their making to their acknowledgement: in
// memory first, in the spool file if the server takes too long, sent strictly
// in the order of their numbers. Pure logic: it is told the time, and what
// the server said.
//
//        acknowledged          next to send            next number
//             v                      v                      v
//   ... gone  | in the spool ... | in memory ...            |
//             |<-- sent, in flight ->|<----- waiting ------>|
//
// The spool always holds the older part. Ring space is given back when a
// batch is acknowledged or spooled, whichever is first.
//
// Owned by the ProcessStream. Threads: externally synchronised.
#ifndef TRAINCHECK_AGENT_RELAY_OUTBOX_H_
#define TRAINCHECK_AGENT_RELAY_OUTBOX_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/relay/spool_file.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck {

class Outbox {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Dependencies {
    // Makes the spool file, the first time that it is needed.
    std::function<absl::StatusOr<std::unique_ptr<SpoolFile>>()> open_spool;
    // The batch's slices are safe: their ring space is free.
    std::function<void(const v1::Batch&)> release;
  };
  explicit Outbox(Dependencies dependencies);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // May another batch be added, or is the memory full?
  bool has_room() const;
  // Takes a batch and numbers it. REQUIRES: has_room().
  void Add(v1::Batch batch, TimePoint now);

  // A stream is open: the server wants `next_batch` and takes `credit_bytes`
  // of payload unacknowledged. InvalidArgument if it claims to have a batch
  // that was never made. Where the server is behind what is still held, the
  // oldest batch held comes first.
  [[nodiscard]] absl::Status Resume(uint64_t next_batch, uint64_t credit_bytes);
  // The stream is gone; nothing is sent until the next Resume.
  void Disconnect() { credit_bytes_ = 0; }

  // The next batch to send; none: all is sent, or there is no credit.
  // DataLoss: the batch cannot be read from the spool any more, it is lost.
  [[nodiscard]] absl::StatusOr<std::optional<v1::Batch>> NextToSend();
  // A lost batch is next: the stream has to be opened anew, so that the
  // server meets the gap at its beginning.
  bool must_reopen() const;

  // All batches below `next_batch` are stored. InvalidArgument if they were
  // not sent.
  [[nodiscard]] absl::Status Acknowledge(uint64_t next_batch);

  // Moves what is older than `age` from memory into the spool.
  [[nodiscard]] absl::Status Spool(TimePoint now,
                                   std::chrono::milliseconds age);

  // Everything that is held is sent / is acknowledged.
  bool all_sent() const { return next_to_send_ == next_number_; }
  bool empty() const { return held_.empty(); }
  uint64_t held() const { return held_.size(); }

  // The end when all is delivered: deletes the spool file.
  void RemoveSpool();
  // The end when the server stayed away: everything held, and the goodbye,
  // stays in the spool file.
  [[nodiscard]] absl::Status LeaveBehind(const v1::Goodbye& goodbye);
  // The end when the server refused: everything is lost, all rings are free.
  void Discard();

  // Empty as long as nothing was spooled.
  std::string spool_path() const;

 private:
  struct Held {
    uint64_t number;
    uint64_t payload_bytes;
    TimePoint added;
    std::unique_ptr<v1::Batch> batch;  // null: in the spool
    SpoolFile::Offset offset = 0;      // in the spool
    bool lost = false;                 // unreadable in the spool
  };

  absl::Status OpenSpool();
  absl::Status SpoolOne(Held* held);
  void PopFront();
  void PopLost();
  // The first held batch with this number or a higher one.
  Held* Find(uint64_t number);

  const Dependencies dependencies_;
  std::unique_ptr<SpoolFile> spool_;
  std::deque<Held> held_;  // numbers rise by one
  size_t spooled_ = 0;     // so many in front are in the spool
  uint64_t memory_bytes_ = 0;
  uint64_t next_number_ = 0;
  uint64_t next_to_send_ = 0;
  uint64_t credit_bytes_ = 0;
  uint64_t in_flight_bytes_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_RELAY_OUTBOX_H_
