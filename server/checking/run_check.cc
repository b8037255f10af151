#include "server/checking/run_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/checking/snapshot_codec.h"
#include "server/store/batch_reader.h"

namespace traincheck::server {
namespace {

// Batches of one process before the others have their turn, so that ranks
// advance together and windows over ranks close early.
constexpr int kShareBatches = 8;

// Stands for the rank of a process that holds no place.
constexpr int32_t kNoRank = -1;

// Version 1 had the attempts that launchers had named; now the daemon decides
// them.
constexpr uint32_t kSnapshotVersion = 2;

// REQUIRES: HasPlace.
Place PlaceOf(const RunView::Process& process) {
  return {process.attempt, *process.rank};
}

// The oldest attempt first, and within one by number: a place that was taken
// over is read in the order of its holders.
std::vector<const RunView::Process*> ByAttempt(const RunView& run) {
  std::vector<const RunView::Process*> processes;
  processes.reserve(run.processes.size());
  for (const auto& process : run.processes) processes.push_back(&process);
  std::stable_sort(
      processes.begin(), processes.end(),
      [](const auto* a, const auto* b) { return a->attempt < b->attempt; });
  return processes;
}

}  // namespace

bool HasPlace(const RunView::Process& process) {
  return process.is_main && process.rank.has_value() && process.world > 1 &&
         !process.refused;
}

RunCheck::RunCheck(const Store* store, const RunView& run,
                   const InvariantSet& set)
    : store_(*store), checker_(run.id, run.experiment, set) {}

stored::CheckSnapshot RunCheck::Save() const {
  stored::CheckSnapshot snapshot;
  snapshot.set_version(kSnapshotVersion);
  for (const auto& [process, cursor] : cursors_) {
    auto* saved = snapshot.add_cursors();
    saved->set_process(process);
    saved->set_next_batch(cursor.next_batch);
    // 0 says that there is none.
    if (cursor.end) saved->set_end(static_cast<uint32_t>(*cursor.end) + 1);
    saved->set_assumed(cursor.assumed);
    if (cursor.attempt) saved->set_attempt(*cursor.attempt + 1);
  }
  for (const Place& place : given_up_) {
    auto* saved = snapshot.add_given_up();
    saved->set_attempt(place.first);
    saved->set_rank(place.second);
  }
  PackChecker(checker_.Save(), &snapshot);
  return snapshot;
}

absl::Status RunCheck::Restore(const stored::CheckSnapshot& snapshot) {
  if (snapshot.version() != kSnapshotVersion) {
    return absl::FailedPreconditionError("it is of another version");
  }
  absl::StatusOr<std::string> state = UnpackCheckerUntrusted(snapshot);
  if (!state.ok()) return state.status();
  for (const auto& saved : snapshot.cursors()) {
    Cursor& cursor = cursors_[saved.process()];
    cursor.next_batch = saved.next_batch();
    // Looked at before the cast: a snapshot on disk may be damaged, and an enum
    // has no other values.
    if (saved.end() > static_cast<uint32_t>(kLastProcessEnd) + 1) {
      return absl::DataLossError("a process has no such end");
    }
    if (saved.end() != 0) cursor.end = ProcessEnd(saved.end() - 1);
    cursor.assumed = saved.assumed();
    if (saved.attempt() != 0) cursor.attempt = saved.attempt() - 1;
  }
  for (const auto& saved : snapshot.given_up()) {
    given_up_.insert({saved.attempt(), saved.rank()});
  }
  return checker_.RestoreUntrusted(*state);
}

BatchCursors RunCheck::Cursors() const {
  BatchCursors cursors;
  for (const auto& [process, cursor] : cursors_) {
    cursors[process] = cursor.next_batch;
  }
  return cursors;
}

uint64_t RunCheck::batches() const {
  uint64_t batches = 0;
  for (const auto& [process, cursor] : cursors_) batches += cursor.next_batch;
  return batches;
}

uint64_t RunCheck::BatchesBehind(const RunView& run) const {
  uint64_t behind = 0;
  for (const RunView::Process& process : run.processes) {
    if (process.refused) continue;
    const auto at = cursors_.find(process.number);
    const uint64_t read = at == cursors_.end() ? 0 : at->second.next_batch;
    // A cursor may be ahead of the run: records may have gone since.
    behind += process.next_batch - std::min(read, process.next_batch);
  }
  return behind;
}

bool RunCheck::HasEnded(uint32_t process) const {
  const auto at = cursors_.find(process);
  return at != cursors_.end() && at->second.end.has_value();
}

// What was judged cannot be taken back one by one. So the check begins anew
// wherever a judgement was made that would be another one: a rank was given up
// and came, a process that was read is left out or belongs to another attempt,
// records went or came behind an end, or the end is another one.
std::string RunCheck::WhyAnew(const RunView& run) const {
  // Its windows are judged to the end, and no judgement is taken back.
  if (finished_ && !run.ended) return "the run goes on";
  for (const RunView::Process& process : run.processes) {
    if (HasPlace(process) &&
        given_up_.count({process.attempt, *process.rank})) {
      return absl::StrCat("rank ", *process.rank, " came after all");
    }
    const auto at = cursors_.find(process.number);
    // Nothing was read of it and no end assumed, so nothing was judged by it.
    const bool unread = at == cursors_.end() || (at->second.next_batch == 0 &&
                                                 !at->second.end.has_value());
    if (process.refused) {
      if (!unread) return absl::StrCat(process.name, " is left out now");
      continue;
    }
    if (finished_ && unread) return absl::StrCat(process.name, " came late");
    if (unread) continue;
    const Cursor& cursor = at->second;
    if (cursor.attempt != process.attempt) {
      return absl::StrCat(process.name, " belongs to attempt ",
                          process.attempt);
    }
    if (process.next_batch < cursor.next_batch) {
      return absl::StrCat("records of ", process.name, " are gone");
    }
    if (!cursor.end.has_value()) continue;
    if (process.next_batch != cursor.next_batch) {
      return absl::StrCat("records of ", process.name, " came late");
    }
    // An end that was assumed holds as long as nobody streams.
    const bool as_judged = process.end.has_value()
                               ? process.end == cursor.end
                               : cursor.assumed && !process.connected;
    if (!as_judged) return absl::StrCat(process.name, " is back");
  }
  return "";
}

// A process that has not stepped yet and has said nothing new is not slow: it
// may never train.
bool RunCheck::IsLive(const RunView::Process& process) const {
  if (!HasPlace(process) || HasEnded(process.number)) return false;
  return IsBehind(process) || checker_.StepOf(process.number) > 0;
}

RankPace RunCheck::PaceOf(const RunView& run) const {
  RankPace pace;
  for (const RunView::Process& process : run.processes) {
    if (!HasPlace(process)) continue;
    pace.Add(process, checker_.StepOf(process.number), IsLive(process));
  }
  return pace;
}

uint64_t RunCheck::Limit(const RunView::Process& process, RankPace* pace) {
  // A process without a place waits for all ranks, since none of them is its
  // own.
  const Place place =
      HasPlace(process) ? PlaceOf(process) : Place(process.attempt, kNoRank);
  const uint64_t slowest =
      pace->SlowestOfOthers(place, checker_.GroupRanksOf(process.number));
  return slowest == UINT64_MAX ? slowest : slowest + kMaxAheadSteps;
}

// The records of a process that took over the place of another are read after
// all of that one's.
bool RunCheck::WaitsForItsPlace(const RunView::Process& process,
                                const RankPace& pace) const {
  if (!HasPlace(process)) return false;
  const std::vector<uint32_t>& holders = pace.HoldersOf(PlaceOf(process));
  return std::any_of(holders.begin(), holders.end(), [&](uint32_t other) {
    return other < process.number && !HasEnded(other);
  });
}

// The durable cursor of the view counts: what is not on disk yet is not read.
bool RunCheck::IsBehind(const RunView::Process& process) const {
  const auto at = cursors_.find(process.number);
  const uint64_t read = at == cursors_.end() ? 0 : at->second.next_batch;
  return read < process.next_batch;
}

void RunCheck::Introduce(const RunView::Process& process) {
  Cursor& cursor = cursors_[process.number];
  // Once: a process that changes its attempt later makes the check begin anew
  // (WhyAnew).
  if (cursor.attempt.has_value()) return;
  cursor.attempt = process.attempt;
  checker_.SetAttempt(process.number, process.attempt);
}

absl::StatusOr<bool> RunCheck::ReadShare(const RunView& run,
                                         const RunView::Process& process,
                                         RankPace* pace, bool* more) {
  Cursor& cursor = cursors_[process.number];
  if (cursor.next_batch >= process.next_batch) return false;
  if (WaitsForItsPlace(process, *pace)) return false;
  const uint64_t limit = Limit(process, pace);
  const auto may_read = [&] { return checker_.StepOf(process.number) < limit; };
  if (!may_read()) return false;
  Introduce(process);
  int left = kShareBatches;
  bool whole = true;
  absl::Status read =
      ReadBatches(store_, {run.number, process.number, cursor.next_batch},
                  process.next_batch, [&](const StoredBatch& batch) {
                    checker_.Consume(process.number, batch);
                    cursor.next_batch = batch.number + 1;
                    // Looked at behind each batch, since one may close many
                    // steps: a rank is ahead by one batch more than the limit
                    // at most.
                    whole = --left > 0 && may_read();
                    return whole;
                  });
  if (!read.ok()) return read;
  // The numbers behind the last batch found are quarantined ones.
  if (whole) cursor.next_batch = process.next_batch;
  *more |= cursor.next_batch < process.next_batch && may_read();
  return true;
}

// Nothing streams, and a later attempt or a later process has its place: its
// own end may never be known, and nobody waits for it.
bool RunCheck::IsOver(const RunView::Process& process, const RankPace& pace) {
  if (process.connected || !HasPlace(process)) return false;
  return process.attempt < pace.newest_attempt() ||
         pace.HoldersOf(PlaceOf(process)).back() > process.number;
}

bool RunCheck::EndIfOver(const RunView::Process& process,
                         const RankPace& pace) {
  Cursor& cursor = cursors_[process.number];
  // Windows close with the end of the process, so the checker is given the end
  // behind the last record.
  if (cursor.end.has_value() || cursor.next_batch < process.next_batch) {
    return false;
  }
  if (process.end.has_value()) {
    cursor.end = process.end;
  } else if (IsOver(process, pace)) {
    cursor.end = ProcessEnd::kLost;
    // Its relay may come back with the true end: then the check begins anew.
    cursor.assumed = true;
  } else {
    return false;
  }
  Introduce(process);
  checker_.EndProcess(process.number, *cursor.end);
  return true;
}

void RunCheck::GiveUpRanks(const RunView& run, const RankPace& pace,
                           bool at_end) {
  // Each list once, however many ranks have it.
  std::set<std::pair<uint32_t, SharedRanks>> groups;
  for (const RunView::Process& process : run.processes) {
    if (!HasPlace(process)) continue;
    // A rank may begin late: it is missed once the others are as far as they
    // may be ahead.
    if (!at_end && checker_.StepOf(process.number) <= kMaxAheadSteps) continue;
    groups.emplace(process.attempt, checker_.GroupRanksOf(process.number));
  }
  std::set<Place> missing;
  for (const auto& [attempt, ranks] : groups) {
    for (const int32_t rank : *ranks) {
      const Place place = {attempt, rank};
      if (!pace.IsHeld(place)) missing.insert(place);
    }
  }
  for (const Place& place : missing) {
    if (!given_up_.insert(place).second) continue;
    checker_.GiveUpRank(place.first, place.second, "never announced itself");
  }
}

absl::StatusOr<bool> RunCheck::Advance(const RunView& run) {
  if (finished_) return false;
  bool more = false;
  bool progress = false;
  bool all_ended = true;
  bool held_back = false;
  // An attempt of which more can be read. Those after it wait: a job that began
  // again a hundred times would otherwise be in memory with all of its
  // processes at once.
  std::optional<uint32_t> unread;
  // Taken once: to read on only raises steps, so the limits that follow from it
  // are at most too low.
  RankPace pace = PaceOf(run);
  for (const RunView::Process* process : ByAttempt(run)) {
    if (process->refused) continue;
    if (!unread.has_value() || process->attempt == *unread) {
      absl::StatusOr<bool> read = ReadShare(run, *process, &pace, &more);
      if (!read.ok()) return read.status();
      if (*read && IsBehind(*process)) unread = process->attempt;
      progress |= *read;
      progress |= EndIfOver(*process, pace);
    }
    all_ended &= HasEnded(process->number);
    held_back |= IsBehind(*process);
  }
  // Refused processes do not count: they are never read, and the run is over
  // without them.
  all_read_ = run.ended && all_ended;
  // Behind the reading, which may have brought the others as far as they may be
  // ahead of a rank that never came.
  GiveUpRanks(run, pace, all_read_);
  // What one waits for may be there now.
  return more || (held_back && progress);
}

void RunCheck::End() {
  checker_.EndRun();
  finished_ = true;
}

}  // namespace traincheck::server
