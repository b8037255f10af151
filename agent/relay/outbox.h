// The batches of one process from their making to their acknowledgement: in
// memory first, in the spool file if the server takes too long, sent strictly
// in order. Pure logic: it is told the time, and what the server said.
//
//      server's cursor              next to send
//             v                          v
//   ... gone  | definitions | in the spool ... | in memory ... |
//             |<--- sent, in flight ---->|<----- waiting ----->|
//
// A batch has no number of its own: the n-th that is held has the number of
// the server's cursor plus n. What a batch is follows from its slices. So when
// a server answers that knows the process from elsewhere (this relay took over
// from a dead one, or the store is another one), everything that is held is
// laid beside the positions that the store has: what lies below is dropped,
// what straddles them is cut, definitions that the store lacks come first, and
// the numbers go on from the server's.
//
// Ring space is given back when a batch is acknowledged or spooled, whichever
// is first.
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
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/relay/batch_trim.h"
#include "agent/relay/compressor.h"
#include "agent/relay/ring_coverage.h"
#include "agent/relay/spool_file.h"
#include "agent/relay/spool_load.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

class Outbox {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using SharedBatch = std::shared_ptr<const v1::Batch>;

  struct Dependencies {
    // Makes the spool file, the first time that it is needed.
    std::function<absl::StatusOr<std::unique_ptr<SpoolFile>>()> open_spool;
    // The slices are safe: their ring space is free.
    std::function<void(const Slices&)> release;
    // Everything that the process has defined, as batches.
    std::function<std::vector<SharedBatch>()> definitions;
    Compressor* compressor = nullptr;
  };
  explicit Outbox(Dependencies dependencies);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Goes on with what another relay left. REQUIRES: nothing was added.
  void Adopt(LoadedSpool loaded);

  // May another batch be added, or is the memory full?
  bool has_room() const;
  // Takes a batch. REQUIRES: has_room().
  void Add(v1::Batch batch, TimePoint now);

  // A stream is open: numbers go on from the server's next_batch. Returns what
  // is covered of each ring if the positions had to be compared, else nothing:
  // readers of the rings have to leave out what lies below.
  std::optional<RingCoverages> Resume(const v1::Welcome& welcome);
  // The stream is gone; nothing is sent until the next Resume.
  void Disconnect() { credit_bytes_ = 0; }

  // The next batch to send; none: all is sent, or there is no credit. A batch
  // that cannot be read from the spool any more is left out and counted as
  // lost; the next one has its number.
  std::optional<v1::Batch> NextToSend();

  // All batches below `next_batch` are stored. Internal if they were not sent.
  [[nodiscard]] absl::Status Acknowledge(uint64_t next_batch);
  // Gives up the first batch that is in flight. REQUIRES: Disconnect came
  // before, and sent() > 0.
  void DropFirst();

  // Moves what is older than `age` from memory into the spool.
  [[nodiscard]] absl::Status Spool(TimePoint now,
                                   std::chrono::milliseconds age);
  // Makes the spool file although nothing need go there yet.
  [[nodiscard]] absl::Status OpenSpool();

  // So many of what is held are sent and not acknowledged.
  size_t sent() const { return sent_; }
  bool all_sent() const { return sent_ == held_.size(); }
  bool empty() const { return held_.empty(); }
  size_t held() const { return held_.size(); }
  // Records in what is held.
  uint64_t held_records() const;
  // Batches that were given up since the last call, damaged or refused.
  uint64_t TakeLostBatches();

  // The end when all is delivered: deletes the spool file.
  void RemoveSpool();
  // The end when the server stayed away: everything held, and the goodbye,
  // stays in the spool file, with the definitions that a new store would lack.
  [[nodiscard]] absl::Status LeaveBehind(const v1::Goodbye& goodbye);
  // The end when the server refused: everything is lost, all rings are free.
  void Discard();

  // Empty as long as nothing was spooled.
  std::string spool_path() const;

 private:
  struct Held {
    uint64_t sequence = 0;  // its number in the spool
    uint64_t payload_bytes = 0;
    TimePoint added{};
    SharedBatch batch = nullptr;  // null: in the spool
    // What is to be sent of it; the batch itself may have more in front.
    Slices slices = {};
    SpoolFile::Offset offset = 0;  // in the spool
    bool definitions = false;      // from the table, never spooled
  };

  absl::Status SpoolOne(Held* held);
  absl::Status SpoolDefinitions();
  absl::StatusOr<SharedBatch> Load(const Held& held);
  void PopFront();
  // Takes a batch that leaves held_ out of the books.
  void Leave(const Held& held);
  // Tells the spool file what is not needed any more.
  void NoteProgress();

  // Lays everything held beside what the store has.
  RingCoverages Rebase(const v1::Welcome& welcome);
  // Puts in front what the store lacks of the definitions.
  void InsertDefinitions(uint64_t stored_position);
  // Leaves of the batch what is above the floors; false: nothing.
  bool Trim(const RingRanges& wanted, Held* held);

  const Dependencies dependencies_;
  std::unique_ptr<SpoolFile> spool_;
  // First definitions_ from the table, then spooled_ in the spool, then those
  // in memory.
  std::deque<Held> held_;
  size_t definitions_ = 0;
  size_t spooled_ = 0;
  size_t sent_ = 0;
  uint64_t first_number_ = 0;      // of held_.front()
  uint64_t next_sequence_ = 0;     // of the next batch that is added
  uint64_t adopted_sequence_ = 0;  // below: of a relay before this one
  uint64_t memory_bytes_ = 0;
  uint64_t credit_bytes_ = 0;
  uint64_t in_flight_bytes_ = 0;
  uint64_t lost_batches_ = 0;
  std::string store_id_;  // empty: no server has answered yet
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_OUTBOX_H_
