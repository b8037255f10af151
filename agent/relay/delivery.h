// Brings one process's batches, ring reports and goodbye to the daemon:
// connects, resumes, sends in order, starts again when the stream breaks.
//
//             +--------- broken: wait, 100 ms .. 2 s ---------+
//             v                                               |
//   start -> waiting -> opening (Hello) -> open (Welcome) ----+
//                            |                 |
//                            +---> refused     +---> done (goodbye stored)
//
// Owned by the ProcessStream; borrows its Outbox.
// Threads: externally synchronised (the relay's loop). It is told the time.
#ifndef TRAINCHECK_AGENT_RELAY_DELIVERY_H_
#define TRAINCHECK_AGENT_RELAY_DELIVERY_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/relay/jitter.h"
#include "agent/relay/limits.h"
#include "agent/relay/outbox.h"
#include "agent/relay/stream.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace traincheck::agent {

class Delivery {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  struct Dependencies {
    std::shared_ptr<grpc::Channel> channel;  // shared by all processes
    std::function<void()> wake;              // see IngestStream
    // The server told what it has of the rings.
    std::function<void(const RingCoverages&)> covered;
    // The run's capture plan has changed, or is told again.
    std::function<void(const v1::PlanChange&)> plan_changed;
  };
  Delivery(Dependencies dependencies, v1::Hello hello, Outbox* outbox);
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Hears what the server said and sends what can be sent.
  void Turn(TimePoint now);

  // The newest counters; they go out if they have changed.
  void SetReports(const std::vector<v1::RingReport>& reports);
  // The last word, once the last batch is in the outbox.
  void Finish(v1::Goodbye goodbye) { goodbye_ = std::move(goodbye); }

  bool open() const { return state_ == State::kOpen; }
  // Is a stream open to a server that wants to hear that a process is quiet?
  bool takes_quiet() const { return open() && takes_quiet_; }
  // How long records may lie in the rings before they go out.
  std::chrono::milliseconds gather() const { return gather_; }
  // The server has everything, the goodbye included.
  bool done() const { return state_ == State::kDone; }
  // The server does not talk to this version or user now; it is asked again
  // and again.
  bool unwelcome() const;
  // Is that over a token that may be a new daemon's at any moment? It is tried
  // again soon.
  bool awaits_token() const;
  // The server will not have this process; `last_error` says why.
  bool refused() const { return state_ == State::kRefused; }
  // Why there is no stream; OK if none was tried yet or one is open.
  const absl::Status& last_error() const { return last_error_; }

 private:
  enum class State { kWaiting, kOpening, kOpen, kRefused, kDone };

  void Open(TimePoint now);
  void Hear(TimePoint now);
  void HearWelcome(const v1::Welcome& welcome, TimePoint now);
  void HearAcknowledged(const v1::Acknowledged& acknowledged, TimePoint now);
  void Break(const absl::Status& why, TimePoint now);
  std::chrono::milliseconds WaitAfter(const absl::Status& why);
  // The server did not like a message: finds out which batch, and gives that
  // one up so that those behind it come through.
  void Blame();
  void TellLost();
  // Sends one message if there is one to send.
  bool SendOne();
  bool SendBatch();
  bool SendReports();

  const Dependencies dependencies_;
  v1::Hello hello_;
  Outbox* const outbox_;

  State state_ = State::kWaiting;
  std::unique_ptr<IngestStream> stream_;
  std::string store_id_;
  bool takes_quiet_ = false;
  // As the server said last, also while there is no stream: many come back at
  // once after it was away.
  std::chrono::milliseconds gather_ = kMaxLie;
  absl::Status last_error_;
  TimePoint next_try_{};
  TimePoint opened_at_{};
  std::chrono::milliseconds backoff_;
  Jitter jitter_;
  int tokens_refused_ = 0;  // in a row

  v1::RingReports reports_;
  std::string reports_text_;  // reports_ serialized
  bool reports_sent_ = true;  // reports_, on this stream
  std::optional<v1::Goodbye> goodbye_;
  bool goodbye_sent_ = false;  // on this stream

  // One batch at a time, until the server has taken them all.
  bool careful_ = false;
  // Streams that ended over what is in flight, since the last progress.
  int strikes_ = 0;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_DELIVERY_H_
