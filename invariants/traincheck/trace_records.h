// A process of a TrainCheck trace as a process of ours: its lines as records
// in batches, as a relay would deliver them (docs/traincheck-files.md).
//
// Threads: pure function.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_RECORDS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/traincheck/definition_writer.h"
#include "invariants/traincheck/record_stream.h"
#include "invariants/traincheck/trace_folder.h"

namespace traincheck {

// What became of the lines of one process.
struct ProcessReport {
  uint64_t lines = 0;    // all but those that the folder skipped
  uint64_t records = 0;  // that they became, definitions among them
  std::vector<SkippedLine> skipped;
  uint64_t incomplete_calls = 0;
  // Parts of lines that records have no place for, by name.
  std::map<std::string, uint64_t> left_out;
  // What a Goodbye tells.
  std::map<uint32_t, RingTotals> rings;
};

// Who the process is, but for `run`, `experiment` and `role`. `alone`: the
// trace has no other one.
ImportedProcess IdentityOf(const TraceFolder& folder,
                           const TraceProcess& process, bool alone);

// Hands the batches of the process to `deliver`. An error is that of
// `deliver`, or tells of a file that cannot be read any more.
[[nodiscard]] absl::StatusOr<ProcessReport> ConvertProcess(
    const TraceFolder& folder, const TraceProcess& process,
    const ImportedProcess& identity, RecordStream::Deliver deliver);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_RECORDS_H_
