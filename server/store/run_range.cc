#include "server/store/run_range.h"

#include "server/store/keys.h"

namespace traincheck::server {

KeyRange BatchesOf(uint64_t run) {
  return {BatchKey({.run = run}), BatchKey({.run = run + 1})};
}

void DeleteRecordsOf(uint64_t run, WriteSet* writes) {
  const KeyRange range = BatchesOf(run);
  writes->DeleteRange(Table::kBatches, range.from, range.to);
  writes->DeleteRange(Table::kQuarantine, range.from, range.to);
  // A check that is begun anew without them must not know of them.
  writes->Delete(Table::kRuns, SnapshotKey(run));
}

void DeleteAllOf(uint64_t run, WriteSet* writes) {
  DeleteRecordsOf(run, writes);
  writes->Delete(Table::kRuns, RunKey(run));
  writes->Delete(Table::kRuns, CheckKey(run));
  writes->Delete(Table::kRuns, DecidedKey(run));
  // Ranges and not single keys: how many processes, plans and violations a run
  // has need not be read first.
  writes->DeleteRange(Table::kRuns, ProcessKey(run, 0), ProcessKey(run + 1, 0));
  writes->DeleteRange(Table::kRuns, PlanKey(run, 0), PlanKey(run + 1, 0));
  writes->DeleteRange(Table::kViolations, ViolationKey(run, ""),
                      ViolationKey(run + 1, ""));
  writes->DeleteRange(Table::kMeta, MarkKey(run, ""), MarkKey(run + 1, ""));
  writes->DeleteRange(Table::kMeta, AlertCallKey(run, ""),
                      AlertCallKey(run + 1, ""));
}

}  // namespace traincheck::server
