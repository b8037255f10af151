#include "server/checking/run_check.h"

#include "server/store/batch_reader.h"

namespace traincheck {
namespace {

// Batches of one process before the others have their turn, so that ranks
// advance together and windows over ranks close early.
constexpr int kShareBatches = 8;

}  // namespace

RunCheck::RunCheck(const Store* store, const RunView& run,
                   const InvariantSet& set)
    : store_(*store), checker_(run.id, run.experiment, set) {}

bool RunCheck::Fits(const RunView& run) const {
  if (finished_ && (!run.ended || run.processes.size() != cursors_.size())) {
    return false;
  }
  for (const RunView::Process& process : run.processes) {
    const auto at = cursors_.find(process.number);
    if (at == cursors_.end() || !at->second.ended || process.refused) continue;
    if (!process.end.has_value() ||
        process.next_batch != at->second.next_batch) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<bool> RunCheck::Advance(const RunView& run) {
  if (finished_) return false;
  bool more = false;
  bool all_ended = true;
  for (const RunView::Process& process : run.processes) {
    Cursor& cursor = cursors_[process.number];
    if (process.refused) continue;
    absl::StatusOr<bool> left = ReadShare(run, process, &cursor);
    if (!left.ok()) return left.status();
    more |= *left;
    if (!*left && process.end.has_value() && !cursor.ended) {
      checker_.EndProcess(process.number, *process.end);
      cursor.ended = true;
    }
    all_ended &= cursor.ended;
  }
  if (run.ended && all_ended) {
    checker_.EndRun();
    finished_ = true;
  }
  return more;
}

absl::StatusOr<bool> RunCheck::ReadShare(const RunView& run,
                                         const RunView::Process& process,
                                         Cursor* cursor) {
  if (cursor->next_batch >= process.next_batch) return false;
  int left = kShareBatches;
  const absl::Status read =
      ReadBatches(store_, {run.number, process.number, cursor->next_batch},
                  process.next_batch, [&](const StoredBatch& batch) {
                    checker_.Consume(process.number, batch);
                    cursor->next_batch = batch.number + 1;
                    return --left > 0;
                  });
  if (!read.ok()) return read;
  // The numbers behind the last batch found are quarantined ones.
  if (left > 0) cursor->next_batch = process.next_batch;
  return cursor->next_batch < process.next_batch;
}

}  // namespace traincheck
