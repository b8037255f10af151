#include "agent/relay/process_stream.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/relay/identity.h"
#include "agent/relay/limits.h"
#include "agent/relay/process_liveness.h"
#include "agent/relay/spool_load.h"
#include "base/logging.h"

namespace traincheck::agent {
namespace {

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace

ProcessStream::ProcessStream(Peer peer, RelayContext* context)
    : peer_(std::move(peer)),
      context_(context),
      table_(context->compressor),
      batcher_(&rings_, &table_, context->compressor) {}

// Everything that waits on the socket is taken at once. The loop ends at the
// latest with the socket, which is closed on the first bad message.
void ProcessStream::OnSocket() {
  while (peer_.socket.valid()) {
    absl::StatusOr<std::optional<Handover>> handover =
        ReceiveHandover(peer_.socket.get());
    if (!handover.ok()) {
      // A closed socket is how connections end and is not worth a line.
      if (handover.status().code() == absl::StatusCode::kInvalidArgument) {
        spdlog::warn("connection closed pid={} error=\"{}\"", peer_.pid,
                     Message(handover.status()));
      }
      peer_.socket.Close();
    } else if (handover->has_value()) {
      TakeHandover(**handover);
    } else {
      return;
    }
  }
}

// A ring that is refused is not read: its writer fills it, then drops and
// counts.
void ProcessStream::TakeHandover(const Handover& handover) {
  absl::Status status =
      // A forked child makes rings of its own, so this ring would have another
      // writer.
      handover.message.pid == peer_.pid
          ? rings_.Add(handover.memory.get(), handover.message)
          : absl::PermissionDeniedError("the ring belongs to another process");
  if (status.ok()) {
    AnswerHasRing(peer_.socket.get());
    NoteMapping(handover);
  } else {
    spdlog::warn("ring refused pid={} ring={} error=\"{}\"", peer_.pid,
                 handover.message.ring, Message(status));
  }
}

// Remembers the inode of the definition ring, if the process is seen to have it
// mapped. If the mapping is not seen now (maps that cannot be read), its
// absence says nothing later.
void ProcessStream::NoteMapping(const Handover& handover) {
  struct stat file;
  if (handover.message.ring != kDefinitionRing ||
      fstat(handover.memory.get(), &file) != 0 ||
      !HasMapped(peer_.pid, file.st_ino).value_or(false)) {
    return;
  }
  mapped_inode_ = file.st_ino;
}

// A process that replaced its program by exec lives on under its pid and start
// time, and no pidfd reports that. Its rings are no longer mapped.
bool ProcessStream::IsReplaced(TimePoint now) {
  if (peer_.socket.valid() || !mapped_inode_.has_value() ||
      now - looked_at_ < kLookForProgram) {
    return false;
  }
  looked_at_ = now;
  // Maps that cannot be read prove nothing.
  return HasMapped(peer_.pid, *mapped_inode_) == false;
}

void ProcessStream::OnDeath(TimePoint now) {
  // What it handed over with its last breath is still in the socket.
  OnSocket();
  peer_.socket.Close();
  peer_.pidfd.Close();
  if (ended_at_.has_value()) return;
  ended_at_ = now;
  // By the clock of its host: the daemon compares it with starts there.
  ended_unix_ns_ = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count());
}

bool ProcessStream::active(TimePoint now) const {
  return now - last_records_ < kActiveFor;
}

// One turn: the end of the process, its rings, its batches, the spool, the
// stream. The order is that of the records' way.
void ProcessStream::Turn(TimePoint now) {
  // Without a pidfd, or without a ring to wait for, the closed socket is the
  // end.
  if (!peer_.socket.valid() && !ended_at_.has_value() &&
      (!peer_.pidfd.valid() || rings_.definitions() == nullptr)) {
    OnDeath(now);
  }
  if (!ended_at_.has_value() && IsReplaced(now)) {
    replaced_ = true;
    OnDeath(now);
  }
  // Behind the looks at its end: of a process that has ended this sees all that
  // it committed, so that nothing unread means that nothing more comes.
  rings_.Refresh();
  for (const std::string& fault : rings_.NewFaults()) {
    spdlog::error("ring quarantined pid={} error=\"{}\"", peer_.pid, fault);
  }
  if (rings_.unread_bytes() > 0) last_records_ = now;
  if (!refused_ && delivery_ == nullptr) TryStart(now);
  if (refused_) return TurnRefused();
  if (delivery_ == nullptr) {
    finished_ = ended_at_.has_value();
    if (finished_ && rings_.unread_bytes() > 0) {
      spdlog::warn(
          "records lost pid={} bytes={}: the process ended before it "
          "said who it is",
          peer_.pid, rings_.unread_bytes());
    }
    return;
  }
  MakeBatches(now);
  TellQuiet(now);
  NoteDefinitions();
  SpoolOld(now);
  Report(now);
  delivery_->Turn(now);
  // After the turn, which may have heard a newer plan.
  TellPlan();
  if (delivery_->refused()) return Refuse(delivery_->last_error());
  if (ended_at_.has_value()) TurnEnd(now);
}

// Hello can only be sent once the process has said who it is, and under which
// run. Until then the records wait in the rings.
void ProcessStream::TryStart(TimePoint now) {
  const RingReader* definitions = rings_.definitions();
  if (definitions == nullptr) return;
  const auto introduction = FindIdentity();
  if (!introduction.ok()) return Refuse(introduction.status());
  const bool searched_all = definitions->unread_bytes() >= kIdentitySearchBytes;
  if (!introduction->has_value()) {
    if (searched_all) {
      Refuse(absl::InvalidArgumentError("it does not say who it is"));
    }
    return;
  }
  if (!introduced_at_.has_value()) introduced_at_ = now;
  // Ranks that still have to meet will agree on the name of their run.
  // Those that a relay has named already do not wait again. Neither does a
  // process at its end or one whose rings fill up: its records are worth more
  // than the name.
  const bool wait = (*introduction)->run_is_provisional && !searched_all &&
                    definitions->position() == 0 && !ended_at_.has_value() &&
                    !rings_.under_pressure() &&
                    now - *introduced_at_ < kRunAgreement;
  if (!wait) Start((*introduction)->hello, now);
}

// Three places, from the cheapest: the unread ring, the ring's memory behind
// the tail, the spool file of the relay before.
absl::StatusOr<std::optional<Introduction>> ProcessStream::FindIdentity()
    const {
  const RingReader& definitions = *rings_.definitions();
  if (definitions.position() == 0) {
    return FindIntroduction(definitions.Peek(kIdentitySearchBytes), peer_.pid);
  }
  // A relay before this one has taken it.
  std::string history;
  RingChunk chunk;
  if (definitions.PeekHistory(0, &history, &chunk)) {
    return FindIntroduction(history, peer_.pid);
  }
  absl::StatusOr<SpoolOwner> owner = FindSpoolOwner();
  if (owner.ok()) return Introduction{.hello = std::move(owner->hello)};
  return absl::FailedPreconditionError(
      absl::StrCat("the relay before this one is gone, and its ring does not "
                   "say any more who it is; ",
                   owner.status().message()));
}

// The relay before this one noted the Hello in the spool file when the ring was
// about to forget it (NoteDefinitions).
absl::StatusOr<SpoolOwner> ProcessStream::FindSpoolOwner() const {
  v1::ProcessIdentity process;
  process.set_boot_id(BootId());
  process.set_pid(peer_.pid);
  process.set_start_ticks(StartTicks(peer_.pid).value_or(0));
  absl::StatusOr<SpoolOwner> newest =
      absl::NotFoundError("there is no spool file of it");
  // A process that ran several programs (exec) has kept its pid and start time,
  // so each program's file matches. The newest is of the one that runs.
  for (const std::string& path : context_->spool_directory->Files()) {
    const std::string name = std::filesystem::path(path).filename();
    if (!IsSpoolNameOf(name, process)) continue;
    absl::StatusOr<SpoolOwner> owner = ReadSpoolOwner(path);
    const bool newer =
        owner.ok() && newest.ok() &&
        owner->hello.started_unix_ns() > newest->hello.started_unix_ns();
    if (newer || !newest.ok()) newest = std::move(owner);
  }
  return newest;
}

// From here on the process has an outbox and a stream. The spool of a former
// relay is adopted before the first record is read, so that nothing is sent
// twice.
void ProcessStream::Start(v1::Hello hello, TimePoint now) {
  started_at_ = now;
  run_ = hello.run();
  const std::string name = SpoolName(hello.process());
  const std::string earlier = EarlierSpoolName(hello.process());
  SpoolDirectory* directory = context_->spool_directory;
  // The server may still believe in the stream of the relay before and refuses
  // a second one that does not resume.
  hello.set_resumes(context_->takes_over ||
                    rings_.definitions()->position() > 0);
  hello.set_process_started_unix_ns(
      UnixNsOfStart(hello.process().start_ticks()));
  const std::string serialized = hello.SerializeAsString();
  outbox_ = std::make_unique<Outbox>(Outbox::Dependencies{
      .open_spool =
          [directory, name, serialized] {
            return SpoolFile::Create(directory, name, serialized);
          },
      .release = [this](const Slices& slices) { rings_.Release(slices); },
      .definitions = [this] { return table_.Batches(); },
      .compressor = context_->compressor});
  if (TakeOverSpool(name) || (earlier != name && TakeOverSpool(earlier))) {
    hello.set_resumes(true);
  }
  // Behind the spool, which says how far the ring was read.
  if (!table_.Fill(*rings_.definitions())) {
    spdlog::warn(
        "definitions of process {} below position {} are gone: a new store "
        "would not get them",
        peer_.pid, table_.begin());
  }
  delivery_ = std::make_unique<Delivery>(
      Delivery::Dependencies{
          context_->channel, context_->wake,
          [this](const RingCoverages& coverages) { OnCovered(coverages); },
          [this](const v1::PlanChange& change) { OnPlan(change); }},
      hello, outbox_.get());
  spdlog::info("process started pid={} run={} resumes={}", peer_.pid,
               hello.run(), hello.resumes());
}

bool ProcessStream::TakeOverSpool(const std::string& name) {
  const std::string path = context_->spool_directory->Find(name);
  if (path.empty()) return false;
  // What is appended later is counted there. Where that fails the file can
  // still be read.
  context_->spool_directory->Prepare().IgnoreError();
  absl::StatusOr<LoadedSpool> loaded =
      LoadSpool(context_->spool_directory, path);
  // The damaged file makes room: a new one never replaces a file of its name.
  if (loaded.status().code() == absl::StatusCode::kDataLoss) {
    spdlog::error("spool file set aside as {}: {}", SetDamagedAside(path),
                  Message(loaded.status()));
  } else if (!loaded.ok()) {
    spdlog::error("cannot go on with the spool: {}", Message(loaded.status()));
  }
  // What is in the file is safe. It is left out of the rings, and its ring
  // space is given back.
  if (!loaded.ok()) return false;
  RingCoverages coverages;
  for (const SpooledBatch& batch : loaded->batches) {
    for (const v1::Slice& slice : batch.slices) {
      // How many records lie below is not known: the server may say so.
      coverages[slice.ring()] = {.safe = slice.to(), .position = slice.to()};
    }
  }
  rings_.Cover(coverages);
  outbox_->Adopt(*std::move(loaded));
  return true;
}

void ProcessStream::OnCovered(const RingCoverages& coverages) {
  rings_.Cover(coverages);
  if (const RingReader* ring = rings_.definitions()) table_.Fill(*ring);
  // Now the counts are known better than when it was said.
  if (said_goodbye_) delivery_->Finish(MakeGoodbye());
}

void ProcessStream::OnPlan(const v1::PlanChange& change) {
  const absl::Status kept = context_->plans->Put(run_, change);
  if (!kept.ok()) {
    spdlog::warn("a change of the capture plan is left out run={} error=\"{}\"",
                 run_, Message(kept));
  }
}

// Called after each turn, since processes that connect later need the plan as
// well.
void ProcessStream::TellPlan() {
  const HeldPlan* plan = context_->plans->Find(run_);
  if (plan == nullptr || plan->message.version <= told_plan_ ||
      !peer_.socket.valid()) {
    return;
  }
  // One that does not read gets it, or a newer one, when it does.
  if (SendPlan(peer_.socket.get(), *plan)) told_plan_ = plan->message.version;
}

void ProcessStream::NoteDefinitions() {
  const RingReader& ring = *rings_.definitions();
  // Beyond its capacity the ring does not say any more who the process is; a
  // relay after this one finds it in the spool file.
  if (!identity_noted_ && ring.position() > ring.capacity_bytes() / 2) {
    identity_noted_ = true;
    const absl::Status status = outbox_->OpenSpool();
    if (!status.ok()) {
      spdlog::info("no spool file yet pid={} error=\"{}\"", peer_.pid,
                   Message(status));
    }
  }
  if (table_.full() && !std::exchange(told_table_full_, true)) {
    spdlog::warn(
        "process {} has defined more than {} MiB: a new store would get the "
        "definitions below position {} only",
        peer_.pid, kMaxDefinitionTableBytes >> 20, table_.end());
  }
}

void ProcessStream::MakeBatches(TimePoint now) {
  const milliseconds gather =
      ended_at_.has_value() ? milliseconds(0) : delivery_->gather();
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    // Records then stay in the rings. Only when these are full too, the process
    // drops records, and counts them.
    if (!outbox_->has_room()) return;
    std::optional<v1::Batch> batch = batcher_.Next(now, gather);
    if (!batch.has_value()) return;
    outbox_->Add(*std::move(batch), now);
  }
}

// Quiet batches are made only while the stream is open and nothing is held.
// They are not meant for the spool: a later message knows more by then.
void ProcessStream::TellQuiet(TimePoint now) {
  const bool can_tell = delivery_->takes_quiet() && outbox_->empty() &&
                        !ended_at_.has_value() && rings_.unread_bytes() == 0;
  if (can_tell && quiet_.IsDue(now, last_records_)) {
    outbox_->Add(batcher_.Quiet(now), now);
  }
}

// Batches go to the file after kMaxUnacknowledged, or at once if a ring or the
// memory fills up.
void ProcessStream::SpoolOld(TimePoint now) {
  const bool urgent = rings_.under_pressure() || !outbox_->has_room();
  const absl::Status status =
      outbox_->Spool(now, urgent ? milliseconds(0) : kMaxUnacknowledged);
  // Nothing is dropped while there is room, and a daemon to take it.
  if (!status.ok() && (urgent || IsDaemonAway(now)) &&
      !std::exchange(context_->told_spool_fails, true)) {
    spdlog::error("cannot spool: {}; records will be dropped", Message(status));
  }
  if (!outbox_->spool_path().empty() && IsDaemonAway(now)) TellUnreachable();
}

// A stream that is still being opened is not an absence.
bool ProcessStream::IsDaemonAway(TimePoint now) const {
  if (delivery_->open()) return false;
  return !delivery_->last_error().ok() || now - started_at_ >= kNoAnswer;
}

void ProcessStream::TellUnreachable() {
  if (std::exchange(context_->told_unreachable, true)) return;
  const std::string why = Message(delivery_->last_error());
  spdlog::warn("traincheckd at {} {} ({}): records are spooled in {}",
               context_->server,
               delivery_->unwelcome() ? "does not take them" : "not reachable",
               why.empty() ? "no answer" : why, outbox_->spool_path());
}

void ProcessStream::TellUndelivered() const {
  if (outbox_ == nullptr || outbox_->empty()) return;
  spdlog::warn("{} batches of process {} are not delivered yet: they are in {}",
               outbox_->held(), peer_.pid, outbox_->spool_path());
}

// Counters of the rings show drops while the process lives; the goodbye has the
// final ones.
void ProcessStream::Report(TimePoint now) {
  // A message costs a busy server as much as a batch does.
  const auto period = std::max<milliseconds>(
      kReportPeriod, kBatchesAReport * delivery_->gather());
  if (now - reported_at_ < period) return;
  reported_at_ = now;
  delivery_->SetReports(rings_.Reports(/*final=*/false));
}

// Final for this process. The writers must go on all the same, so its rings are
// emptied at each turn (TurnRefused).
void ProcessStream::Refuse(const absl::Status& why) {
  refused_ = true;
  refused_held_ = outbox_ == nullptr ? 0 : outbox_->held_records();
  // What was read by then is stored or held; the writers count what comes on
  // top.
  refused_before_ = rings_.read_records();
  spdlog::error(
      "records of process {} are refused: {}; {} records that were held and "
      "all that follow are dropped",
      peer_.pid, Message(why), refused_held_);
  if (outbox_ != nullptr) outbox_->Discard();
}

void ProcessStream::TurnRefused() {
  rings_.Discard();
  finished_ = ended_at_.has_value();
  if (!finished_) return;
  spdlog::error("{} records of process {} of run {} were refused and dropped",
                refused_records(), peer_.pid, run_.empty() ? "?" : run_);
}

uint64_t ProcessStream::refused_records() const {
  const uint64_t committed = rings_.committed_records();
  return refused_held_ +
         (committed > refused_before_ ? committed - refused_before_ : 0);
}

v1::Goodbye ProcessStream::MakeGoodbye() const {
  v1::Goodbye goodbye;
  goodbye.set_end(batcher_.saw_clean_exit() ? v1::END_KIND_CLEAN
                  : replaced_               ? v1::END_KIND_REPLACED
                                            : v1::END_KIND_DIED);
  goodbye.set_ended_unix_ns(ended_unix_ns_);
  const std::vector<v1::RingReport> reports = rings_.Reports(/*final=*/true);
  goodbye.mutable_rings()->Assign(reports.begin(), reports.end());
  return goodbye;
}

// Called at each turn after the end, until the goodbye is acknowledged or the
// grace is over.
void ProcessStream::TurnEnd(TimePoint now) {
  // The goodbye has the final counters and waits until all is read.
  const bool drained = rings_.unread_bytes() == 0;
  if (drained && !said_goodbye_) {
    said_goodbye_ = true;
    delivery_->Finish(MakeGoodbye());
    delivery_->Turn(now);
  }
  if (delivery_->done()) {
    outbox_->RemoveSpool();
    finished_ = true;
  } else if (now - *ended_at_ >= context_->grace) {
    // The server had its time: the rest waits in the spool file.
    LeaveBehind(MakeGoodbye());
    finished_ = true;
  }
}

void ProcessStream::LeaveBehind(const v1::Goodbye& goodbye) {
  const uint64_t batches = outbox_->held();
  const uint64_t unread = rings_.unread_bytes();
  const absl::Status status = outbox_->LeaveBehind(goodbye);
  if (status.ok() && unread == 0) {
    spdlog::warn(
        "traincheckd at {} not reached in time: {} batches of process "
        "{} stay in {}",
        context_->server, batches, peer_.pid, outbox_->spool_path());
  } else {
    spdlog::error(
        "records of process {} are lost: {}; {} batches were held, "
        "{} bytes unread",
        peer_.pid,
        status.ok() ? "its rings were not read to their end in time"
                    : Message(status),
        batches, unread);
  }
}

}  // namespace traincheck::agent
