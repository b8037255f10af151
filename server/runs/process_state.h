// The books of one process: what is stored of each ring, where it stands in
// the world, in which state it is and why.
//
//   Hello ──> STREAMING ──Goodbye(clean)──> CLEAN
//               │  ▲  └────Goodbye(died)──> DIED
//   stream lost │  │ Hello                    (a late batch reopens all three)
//               ▼  │
//           DISCONNECTED ──silent too long──> SILENT
//               │
//               └──a later start is in its place──> SUPERSEDED
//
// Threads: functions over a value; the owner of the value synchronises.
#ifndef TRAINCHECK_SERVER_RUNS_PROCESS_STATE_H_
#define TRAINCHECK_SERVER_RUNS_PROCESS_STATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/repeated_field.h"
#include "invariants/trace/stored_batch.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/runs/batch_facts.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

using RingReportList = google::protobuf::RepeatedPtrField<v1::RingReport>;

stored::Process MakeProcess(const v1::Hello& hello, uint32_t number);
// "pid 17 on host a".
std::string ProcessName(const stored::Process& process);

bool IsMain(const stored::Process& process);
// Will nothing more come, as far as is known?
bool HasEnded(const stored::Process& process);
// REQUIRES: HasEnded.
ProcessEnd EndOf(const stored::Process& process);
// A main process that ended in another way than by a clean exit or by an
// exception that it recorded.
bool IsLostRank(const stored::Process& process);

void SetState(stored::State state, absl::Time now, stored::Process* process);

// Do the slices go on from what is stored, perhaps behind a gap? An error if
// they overlap it.
[[nodiscard]] absl::Status CheckPositions(const stored::Process& process,
                                          const v1::Batch& batch);

// Books a batch that is being stored. REQUIRES: CheckPositions.
void BookBatch(const v1::Batch& batch, uint64_t stored_bytes,
               stored::Process* process);
void LearnFacts(const BatchFacts& facts, stored::Process* process);
// Counters only rise, so that a report that overtook another changes nothing.
void BookReports(const RingReportList& reports, stored::Process* process);
// Final counters; none if nobody knows them, which leaves open what is lost.
void BookFinalReports(const RingReportList& reports, stored::Process* process);

// What the store holds of its batches, quarantined ones among them.
uint64_t BytesOf(const stored::Process& process);

// What the books hold of each ring.
std::vector<v1::RingCursor> RingCursors(const stored::Process& process);

// As people are told: a process that died without saying why is lost.
v1::ProcessState ApiState(const stored::Process& process);

uint64_t DroppedRecords(const stored::Process& process);
// Committed and not stored; nullopt while that cannot be known.
std::optional<uint64_t> LostRecords(const stored::Process& process);

// What is known to be missing of a process.
struct MissingRecords {
  uint64_t dropped = 0;
  uint64_t lost = 0;
};
MissingRecords MissingOf(const stored::Process& process);

// Why the process is in its state, in words.
std::string StateReason(const stored::Process& process, absl::Time now,
                        absl::Duration lost_after);

v1::Process ToApi(const stored::Process& process, absl::Time now,
                  absl::Duration lost_after);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_PROCESS_STATE_H_
