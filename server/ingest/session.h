// One relay's stream as a state machine, without transport:
//
//   (open) ──Hello──> greeted ──Batch, RingReports──> greeted
//                       └──Goodbye──> leaving ──last reply taken──> finished
//
// Replies appear when the store has synced what they promise; `wake` then
// tells the adapter to fetch them with NextReply.
//
// Threads: Receive and Disconnect from one thread at a time; all else on any
// thread. `wake` runs on the store's commit thread or inside Receive.
#ifndef TRAINCHECK_SERVER_INGEST_SESSION_H_
#define TRAINCHECK_SERVER_INGEST_SESSION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/ingest/batch_pace.h"
#include "server/ingest/byte_budget.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"

namespace traincheck::server {

class ReplyOutbox;

class Session {
 public:
  // What all sessions share. `registry` and `plans` must outlive them.
  struct Dependencies {
    Registry* registry;
    RunPlans* plans;
    std::string store_id;
    std::shared_ptr<ByteBudget> budget;
    std::shared_ptr<BatchPace> pace;
  };
  // `owner`: of the run that it writes, see Registry::Open. `wake` may be
  // called after the session is gone and must be safe then.
  Session(const Dependencies& dependencies, std::string owner,
          std::function<void()> wake);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // An error ends the stream with it.
  [[nodiscard]] absl::Status Receive(const v1::IngestRequest& request);

  // Aborted once a newer stream of the process has taken over.
  [[nodiscard]] absl::Status CheckCurrent() const;

  // The stream is gone, in whatever state.
  void Disconnect();

  std::optional<v1::IngestReply> NextReply();

  bool greeted() const { return greeted_; }
  // Goodbye was received: the relay need not send more.
  bool left() const { return left_; }
  // False while more than the credit, or than the budget of all sessions, waits
  // for the disk. Nobody is woken when others have given the budget back.
  bool may_read() const;
  // Less than the budget of all sessions waits for the disk.
  bool has_room() const { return !use_.budget->used_up(); }
  // The answer to Goodbye was taken by NextReply.
  bool finished() const;

 private:
  absl::Status OnHello(v1::Hello hello);
  absl::Status OnBatch(const v1::Batch& batch);
  absl::Status OnReports(const v1::RingReports& reports);
  absl::Status OnGoodbye(const v1::Goodbye& goodbye);

  const Dependencies use_;
  const std::string owner_;
  // Shared with callbacks that the store still holds.
  const std::shared_ptr<ReplyOutbox> outbox_;
  std::atomic<bool> greeted_ = false;
  std::atomic<bool> left_ = false;
  StreamId stream_;
  std::unique_ptr<RunPlans::Subscription> plan_;
  uint64_t next_batch_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_SESSION_H_
