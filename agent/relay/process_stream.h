// Everything that the relay does for one training process: takes its rings,
// learns who it is, turns records into batches, delivers or spools them, sees
// its end and brings that to the daemon too.
//
//   rings (RingSet) -> Batcher -> Outbox (memory, spool) -> Delivery (gRPC)
//
// Where a relay before this one died, it goes on from what that one left: the
// ring's tails, the spool file and, as soon as the server answers, its cursor.
//
// Owned by the Relay. Threads: one, the relay's loop.
#ifndef TRAINCHECK_AGENT_RELAY_PROCESS_STREAM_H_
#define TRAINCHECK_AGENT_RELAY_PROCESS_STREAM_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "agent/relay/batcher.h"
#include "agent/relay/definition_table.h"
#include "agent/relay/delivery.h"
#include "agent/relay/handover.h"
#include "agent/relay/identity.h"
#include "agent/relay/outbox.h"
#include "agent/relay/quiet_watch.h"
#include "agent/relay/relay_context.h"
#include "agent/relay/ring_set.h"
#include "agent/relay/spool_load.h"

namespace traincheck::agent {

class ProcessStream {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  ProcessStream(Peer peer, RelayContext* context);
  ProcessStream(const ProcessStream&) = delete;
  ProcessStream& operator=(const ProcessStream&) = delete;

  // To poll for reading; -1: not any more.
  int socket() const { return peer_.socket.get(); }
  int pidfd() const { return peer_.pidfd.get(); }

  // The socket is readable.
  void OnSocket();
  // The process is dead.
  void OnDeath(TimePoint now);

  // Moves everything on. To be called after each poll.
  void Turn(TimePoint now);

  // Has it handed over a ring?
  bool has_rings() const { return !rings_.empty(); }
  // Have records come lately, so that it should be polled often?
  bool active(TimePoint now) const;
  bool ended() const { return ended_at_.has_value(); }
  // Is a stream to the server open?
  bool streaming() const { return delivery_ != nullptr && delivery_->open(); }
  // Says where the records are that still wait for the server.
  void TellUndelivered() const;
  // All is delivered, spooled or lost: nothing is left to do.
  bool finished() const { return finished_; }

 private:
  void TakeHandover(const Handover& handover);
  // Remembers the definition ring's file if the process is seen to map it.
  void NoteMapping(const Handover& handover);
  // Learns the identity and makes outbox and delivery, once ring 0 has it.
  void TryStart(TimePoint now);
  // Does the process run another program by now (exec)? The socket is closed
  // then, but so it is where the program closed all files that it found.
  bool IsReplaced(TimePoint now);
  // The identity; nothing: not there yet.
  absl::StatusOr<std::optional<Introduction>> FindIdentity() const;
  // Who the newest spool file of this process is of.
  absl::StatusOr<SpoolOwner> FindSpoolOwner() const;
  void Start(v1::Hello hello, TimePoint now);
  // Takes over the spool file of a relay before this one, if there is one.
  bool TakeOverSpool(const std::string& name);
  void OnCovered(const RingCoverages& coverages);
  void OnPlan(const v1::PlanChange& change);
  // Hands over the run's plan if the process has an older one.
  void TellPlan();
  void NoteDefinitions();
  void MakeBatches(TimePoint now);
  void TellQuiet(TimePoint now);
  void SpoolOld(TimePoint now);
  bool IsDaemonAway(TimePoint now) const;
  void TellUnreachable();
  void Report(TimePoint now);
  void TurnRefused();
  void TurnEnd(TimePoint now);
  void LeaveBehind(const v1::Goodbye& goodbye);
  v1::Goodbye MakeGoodbye() const;
  // Gives the process up: all of its records are lost from now on.
  void Refuse(const absl::Status& why);
  // Records that were given up, so far.
  uint64_t refused_records() const;

  Peer peer_;
  RelayContext* const context_;
  RingSet rings_;
  DefinitionTable table_;
  Batcher batcher_;
  // Null until the process is known.
  std::unique_ptr<Outbox> outbox_;
  std::unique_ptr<Delivery> delivery_;

  std::string run_;
  uint64_t told_plan_ = 0;  // version

  TimePoint started_at_{};
  std::optional<TimePoint> introduced_at_;
  std::optional<TimePoint> ended_at_;
  uint64_t ended_unix_ns_ = 0;
  TimePoint last_records_{};
  QuietWatch quiet_;
  TimePoint reported_at_{};
  // Inode of the definition ring, if the process is seen to have it mapped.
  std::optional<uint64_t> mapped_inode_;
  TimePoint looked_at_{};  // when its mappings were read last
  bool replaced_ = false;
  bool identity_noted_ = false;
  bool told_table_full_ = false;
  bool refused_ = false;
  uint64_t refused_held_ = 0;    // records in batches, when it was refused
  uint64_t refused_before_ = 0;  // records read from the rings by then
  bool said_goodbye_ = false;
  bool finished_ = false;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_PROCESS_STREAM_H_
