#include "server/runs/process_state.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "proto/record_format.h"

namespace traincheck::server {
namespace {

// A ring that the books do not know has nothing stored: its position is 0, and
// what lies before its first slice counts as missing.
stored::Ring* FindOrAddRing(uint32_t ring, stored::Process* process) {
  for (stored::Ring& known : *process->mutable_rings()) {
    if (known.ring() == ring) return &known;
  }
  stored::Ring* added = process->add_rings();
  added->set_ring(ring);
  return added;
}

// Bytes of ring positions that no batch covers. How many records they held is
// not known.
uint64_t MissingBytes(const stored::Process& process) {
  uint64_t bytes = 0;
  for (const stored::Ring& ring : process.rings()) {
    bytes += ring.missing_bytes();
  }
  return bytes;
}

// Behind the reason of whatever state: what is known not to be there.
std::string MissingWords(const stored::Process& process) {
  uint64_t record_bytes = 0;
  bool defines = false;
  bool lacks_definitions = false;
  for (const stored::Ring& ring : process.rings()) {
    if (ring.ring() != kDefinitionRing) {
      record_bytes += ring.missing_bytes();
      continue;
    }
    // A definition ring of which nothing has come leaves no hole in the books
    // that would show it.
    defines = ring.stored_position() > 0;
    lacks_definitions = ring.missing_bytes() > 0;
  }
  std::string words;
  // First, because more depends on them: any later record may use one that
  // nobody has.
  if (lacks_definitions || (!defines && record_bytes > 0)) {
    words = "; definitions are missing: what came after them cannot be judged";
  }
  if (record_bytes > 0) {
    absl::StrAppend(&words, "; ", record_bytes,
                    " bytes of its records are missing");
  }
  return words;
}

// A clock that was set back gives a negative duration, which nobody should
// read.
std::string Seconds(absl::Duration duration) {
  return absl::StrCat(std::max<int64_t>(0, absl::ToInt64Seconds(duration)),
                      " s");
}

// "" where the process did not say how it ended.
std::string ExitWords(const stored::Process& process) {
  switch (static_cast<ExitCause>(process.exit_cause())) {
    case ExitCause::kException:
      return absl::StrCat("ended by an uncaught exception (",
                          process.exit_exception(), ")");
    case ExitCause::kInterrupt:
      return "ended by SIGINT (Ctrl-C)";
    case ExitCause::kUnknown:
      break;
  }
  return "";
}

std::string DiedReason(const stored::Process& process) {
  // The one behind the last that it closed.
  const uint64_t step = process.has_last_step() ? process.last_step() + 1 : 0;
  if (std::string words = ExitWords(process); !words.empty()) {
    if (IsMain(process)) absl::StrAppend(&words, " in step ", step);
    return words;
  }
  // An exec ends a program without a CleanExit mark, although nothing has
  // failed: people are told which of the two it was.
  const std::string how = process.replaced()
                              ? "another program took its place (exec)"
                              : "ended without a clean exit";
  return IsMain(process) ? absl::StrCat("died at step ", step, ": ", how) : how;
}

// Behind the reason of an end that came without counters.
absl::string_view RelayDied(const stored::Process& process) {
  return process.counters_unknown()
             ? "; its relay died with it: what it had not delivered is unknown"
             : "";
}

// Offered records are committed or dropped; what is committed and not stored is
// on its way, or lost.
v1::RingAccount ToApi(const stored::Ring& ring) {
  v1::RingAccount api;
  api.set_ring(ring.ring());
  api.set_offered(ring.offered());
  api.set_committed(ring.committed());
  api.set_dropped(ring.dropped());
  api.set_stored(ring.stored_records());
  api.set_stored_position(ring.stored_position());
  return api;
}

// Without the image: who knows that may go on with the process's stream.
v1::ProcessIdentity IdentityOf(const stored::Process& process) {
  v1::ProcessIdentity identity;
  identity.set_host(process.host());
  identity.set_boot_id(process.boot_id());
  identity.set_pid(process.pid());
  identity.set_start_ticks(process.start_ticks());
  identity.set_parent_pid(process.parent_pid());
  identity.set_kind(static_cast<v1::ProcessKind>(process.kind()));
  identity.set_worker_id(process.worker_id());
  identity.set_owner_pid(process.owner_pid());
  identity.set_owner_start_ticks(process.owner_start_ticks());
  return identity;
}

}  // namespace

// The books of a process begin with what its Hello says. The rank, the world
// and the start come with records (LearnFacts).
stored::Process MakeProcess(const v1::Hello& hello, uint32_t number) {
  const v1::ProcessIdentity& identity = hello.process();
  stored::Process process;
  process.set_number(number);
  process.set_host(identity.host());
  process.set_boot_id(identity.boot_id());
  process.set_pid(identity.pid());
  process.set_start_ticks(identity.start_ticks());
  process.set_parent_pid(identity.parent_pid());
  process.set_kind(identity.kind());
  process.set_worker_id(identity.worker_id());
  process.set_owner_pid(identity.owner_pid());
  process.set_owner_start_ticks(identity.owner_start_ticks());
  process.set_image(identity.image());
  process.set_attempt(hello.attempt());
  // Stays what the launcher counted. The attempt itself is found once the place
  // is known (FittingAttempt).
  process.set_announced_attempt(hello.attempt());
  process.set_agent_version(hello.agent_version());
  process.set_torch_version(hello.torch_version());
  process.set_python_version(hello.python_version());
  process.set_started_unix_ns(hello.started_unix_ns());
  process.set_process_started_unix_ns(hello.process_started_unix_ns());
  return process;
}

std::string ProcessName(const stored::Process& process) {
  return absl::StrCat("pid ", process.pid(), " on host ", process.host());
}

bool IsMain(const stored::Process& process) {
  return process.kind() == v1::PROCESS_KIND_MAIN;
}

bool HasEnded(const stored::Process& process) {
  return process.state() == stored::STATE_CLEAN ||
         process.state() == stored::STATE_DIED ||
         process.state() == stored::STATE_SILENT ||
         process.state() == stored::STATE_SUPERSEDED;
}

namespace {

// The end that the process has recorded itself. Without such a record it was
// killed.
ProcessEnd EndOfDied(const stored::Process& process) {
  switch (static_cast<ExitCause>(process.exit_cause())) {
    case ExitCause::kException:
      return ProcessEnd::kRaised;
    case ExitCause::kInterrupt:
      return ProcessEnd::kInterrupted;
    case ExitCause::kUnknown:
      break;
  }
  return ProcessEnd::kDied;
}

}  // namespace

ProcessEnd EndOf(const stored::Process& process) {
  switch (process.state()) {
    case stored::STATE_CLEAN:
      return ProcessEnd::kClean;
    case stored::STATE_DIED:
      return EndOfDied(process);
    // A silent process may have gone on unseen: its end is not taken for a
    // death at the last step that is known.
    default:
      return ProcessEnd::kLost;
  }
}

bool IsLostRank(const stored::Process& process) {
  // A rank that raised, or that somebody interrupted, has recorded so: it is
  // shown with that cause, and its run is not called lost for it.
  const bool said_why =
      process.state() == stored::STATE_DIED && process.exit_cause() != 0;
  return IsMain(process) && HasEnded(process) &&
         process.state() != stored::STATE_CLEAN && !said_why;
}

void SetState(stored::State state, absl::Time now, stored::Process* process) {
  process->set_state(state);
  process->set_state_since_unix_ns(absl::ToUnixNanos(now));
}

// Positions identify what a batch holds (docs/decisions.md, "Positions, not
// numbers"), so this comparison is what keeps a record from being stored, and
// judged, twice.
absl::Status CheckPositions(const stored::Process& process,
                            const v1::Batch& batch) {
  std::map<uint32_t, uint64_t> position;
  for (const stored::Ring& ring : process.rings()) {
    position[ring.ring()] = ring.stored_position();
  }
  for (const v1::Slice& slice : batch.slices()) {
    // A batch may have several slices of one ring: each is held against the one
    // before it.
    uint64_t& stored = position[slice.ring()];
    // A gap is booked as missing. What came twice would be judged twice.
    if (slice.from() < stored) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slice of ring ", slice.ring(), " begins at position ", slice.from(),
          ", positions below ", stored, " are stored already"));
    }
    stored = slice.to();
  }
  return absl::OkStatus();
}

void BookBatch(const v1::Batch& batch, uint64_t stored_bytes,
               stored::Process* process) {
  for (const v1::Slice& slice : batch.slices()) {
    stored::Ring* ring = FindOrAddRing(slice.ring(), process);
    // A gap is known by its bytes; how many records it held is not known.
    ring->set_missing_bytes(ring->missing_bytes() + slice.from() -
                            ring->stored_position());
    ring->set_stored_position(slice.to());
    ring->set_stored_records(ring->stored_records() + slice.records());
    process->set_stored_records(process->stored_records() + slice.records());
  }
  process->set_stored_bytes(process->stored_bytes() + stored_bytes);
}

// Quarantined batches take room as well, and retention and the limits of owners
// count what the disk holds.
uint64_t BytesOf(const stored::Process& process) {
  return process.stored_bytes() + process.quarantined_bytes();
}

// REQUIRES: the steps of the batch are not learned yet.
void LearnPlan(const BatchFacts& facts, stored::Process* process) {
  process->set_plan_version(*facts.plan_version);
  process->clear_plan_after_step();
  if (facts.plan_after_step.has_value()) {
    process->set_plan_after_step(*facts.plan_after_step);
  } else if (process->has_last_step()) {
    // The plan began before any step of this batch had closed: the last step of
    // the batches before counts.
    process->set_plan_after_step(process->last_step());
  }
}

// Takes over what a stored batch says of its process. Called under the
// registry's lock with the batch already decoded; quarantined batches teach
// nothing.
void LearnFacts(const BatchFacts& facts, stored::Process* process) {
  if (facts.place.has_value()) {
    process->set_rank(facts.place->rank);
    process->set_world(facts.place->world_size);
    process->set_place_source(facts.place->source);
    // The first one stays: a process that makes its group anew is still of its
    // start.
    if (process->start().empty()) process->set_start(facts.start);
  }
  if (facts.kind.has_value()) {
    process->set_kind(static_cast<uint32_t>(facts.kind->kind));
    process->set_worker_id(facts.kind->worker_id);
    process->set_owner_pid(facts.kind->owner_pid);
    process->set_owner_start_ticks(facts.kind->owner_start_ticks);
  }
  if (facts.plan_version.has_value()) LearnPlan(facts, process);
  // Batches of a process are booked in their order, so the first step that is
  // reported stays the first.
  if (facts.first_step.has_value() && !process->has_first_step()) {
    process->set_first_step(*facts.first_step);
  }
  if (facts.last_step.has_value()) process->set_last_step(*facts.last_step);
  // Never taken back: the relay that says Goodbye may be another one than the
  // relay that delivered the mark (Registry::End).
  if (facts.clean_exit) process->set_clean_exit_seen(true);
  if (facts.exit_cause != 0) {
    process->set_exit_cause(facts.exit_cause);
    process->set_exit_exception(facts.exit_exception);
  }
  for (const auto& [number, dropped] : facts.dropped) {
    stored::Ring* ring = FindOrAddRing(number, process);
    // A total: the largest is the newest.
    ring->set_dropped(std::max<uint64_t>(ring->dropped(), dropped));
  }
}

// Each report has totals. Behind a takeover those of two relays may come in any
// order: the larger total is the newer one.
void BookReports(const RingReportList& reports, stored::Process* process) {
  for (const v1::RingReport& report : reports) {
    stored::Ring* ring = FindOrAddRing(report.ring(), process);
    ring->set_tid(report.tid());
    ring->set_offered(std::max<uint64_t>(ring->offered(),  //
                                         report.offered_records()));
    ring->set_committed(std::max<uint64_t>(ring->committed(),  //
                                           report.committed_records()));
    ring->set_dropped(std::max<uint64_t>(ring->dropped(),  //
                                         report.dropped_records()));
  }
}

void BookFinalReports(const RingReportList& reports, stored::Process* process) {
  BookReports(reports, process);
  // A Goodbye without counters, behind one that had them, leaves those final.
  if (!reports.empty()) process->set_counters_final(true);
  process->set_counters_unknown(!process->counters_final());
}

// What a relay is sent in its Welcome: it cuts off what the store has below
// these positions and sends the rest.
std::vector<v1::RingCursor> RingCursors(const stored::Process& process) {
  std::vector<v1::RingCursor> cursors;
  for (const stored::Ring& ring : process.rings()) {
    v1::RingCursor& cursor = cursors.emplace_back();
    cursor.set_ring(ring.ring());
    cursor.set_position(ring.stored_position());
    cursor.set_records(ring.stored_records());
  }
  return cursors;
}

v1::ProcessState ApiState(const stored::Process& process) {
  switch (process.state()) {
    case stored::STATE_STREAMING:
      return v1::PROCESS_STATE_STREAMING;
    case stored::STATE_DISCONNECTED:
      return v1::PROCESS_STATE_DISCONNECTED;
    case stored::STATE_CLEAN:
      return v1::PROCESS_STATE_ENDED;
    case stored::STATE_DIED:
      return IsLostRank(process) ? v1::PROCESS_STATE_LOST
                                 : v1::PROCESS_STATE_ENDED;
    case stored::STATE_SILENT:
    case stored::STATE_SUPERSEDED:
      return v1::PROCESS_STATE_LOST;
    default:
      return v1::PROCESS_STATE_UNSPECIFIED;
  }
}

uint64_t DroppedRecords(const stored::Process& process) {
  uint64_t dropped = 0;
  for (const stored::Ring& ring : process.rings()) dropped += ring.dropped();
  return dropped;
}

std::optional<uint64_t> LostRecords(const stored::Process& process) {
  if (process.counters_final()) {
    uint64_t lost = 0;
    for (const stored::Ring& ring : process.rings()) {
      if (ring.committed() > ring.stored_records()) {
        lost += ring.committed() - ring.stored_records();
      } else if (ring.missing_bytes() > 0) {
        // A relay that took over may have counted without the hole.
        return std::nullopt;
      }
    }
    return lost;
  }
  // Without final counters a number can be given only while the stream goes on
  // and has no hole. Else it stays unknown: 0 would say that all came.
  const bool nothing_missing = process.state() == stored::STATE_STREAMING &&
                               MissingBytes(process) == 0 &&
                               process.quarantined_batches() == 0;
  // What is on its way may still come.
  if (nothing_missing) return 0;
  return std::nullopt;
}

MissingRecords MissingOf(const stored::Process& process) {
  // The counters of the daemon add up known losses alone. What is unknown shows
  // in the process itself.
  return {.dropped = DroppedRecords(process),
          .lost = LostRecords(process).value_or(0)};
}

namespace {

// Steps of helpers and loader workers are not the run's, so a step is named for
// ranks alone.
std::string LostAtStep(const stored::Process& process) {
  if (!IsMain(process)) return "";
  return absl::StrCat(" at step ",
                      process.has_last_step() ? process.last_step() + 1 : 0);
}

// Why it is in its state, without regard to what is missing.
std::string StateWords(const stored::Process& process, absl::Time now,
                       absl::Duration lost_after) {
  const absl::Duration since =
      now - absl::FromUnixNanos(process.state_since_unix_ns());
  switch (process.state()) {
    case stored::STATE_STREAMING:
      return "streaming";
    case stored::STATE_DISCONNECTED:
      return absl::StrCat("stream ended without goodbye ", Seconds(since),
                          " ago; counted as lost ", Seconds(lost_after),
                          " after that unless its relay comes back");
    case stored::STATE_CLEAN:
      return absl::StrCat("clean exit", RelayDied(process));
    case stored::STATE_DIED:
      return absl::StrCat(DiedReason(process), RelayDied(process));
    case stored::STATE_SILENT:
      return absl::StrCat("lost", LostAtStep(process), ": nothing heard for ",
                          Seconds(lost_after),
                          "; what its relay had not delivered is unknown");
    case stored::STATE_SUPERSEDED:
      return absl::StrCat(
          "lost", LostAtStep(process),
          ": a later start took its place and its relay was silent; what that "
          "had not delivered is unknown");
    default:
      return "not known";
  }
}

}  // namespace

std::string StateReason(const stored::Process& process, absl::Time now,
                        absl::Duration lost_after) {
  // Before the state: whatever becomes of the process, it is not checked, and
  // this says what to do about it.
  if (!process.place_conflict().empty()) return process.place_conflict();
  return StateWords(process, now, lost_after) + MissingWords(process);
}

v1::Process ToApi(const stored::Process& process, absl::Time now,
                  absl::Duration lost_after) {
  v1::Process api;
  *api.mutable_identity() = IdentityOf(process);
  api.set_attempt(process.attempt());
  if (process.has_rank()) api.set_rank(process.rank());
  if (process.has_world()) api.set_world(process.world());
  api.set_state(ApiState(process));
  api.set_reason(StateReason(process, now, lost_after));
  api.set_records(process.stored_records());
  api.set_dropped(DroppedRecords(process));
  // Left unset where it is unknown, so that no client shows it as 0.
  if (const auto lost = LostRecords(process)) api.set_lost(*lost);
  if (process.has_last_step()) api.set_last_step(process.last_step());
  for (const stored::Ring& ring : process.rings()) {
    *api.add_rings() = ToApi(ring);
  }
  api.set_next_batch(process.next_batch());
  api.set_stored_bytes(process.stored_bytes());
  api.set_number(process.number());
  return api;
}

}  // namespace traincheck::server
