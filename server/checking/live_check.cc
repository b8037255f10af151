#include "server/checking/live_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "invariants/sets/set_ref.h"
#include "server/checking/check_summary.h"
#include "server/store/keys.h"

namespace traincheck::server {
namespace {

// Saving a state takes at most this share of the checker's time, or of the
// disk's, whose rate is assumed below.
constexpr double kSnapshotShare = 0.02;
constexpr double kWriteRate = 50e6;  // bytes a second

// The largest state that is kept of a finished check. A larger one is deleted:
// most runs that have ended do not go on.
constexpr size_t kMaxKeptBytes = 4 << 20;

// Did retention take all that could be checked?
bool HasNoRecords(const RunView& run) {
  return run.records_deleted &&
         std::all_of(
             run.processes.begin(), run.processes.end(),
             [](const RunView::Process& process) { return process.refused; });
}

// Attempts of which no check can read all any more. What was found in them
// stays: retention deletes records, not findings.
std::set<uint32_t> AttemptsWithoutRecords(const RunView& run) {
  std::set<uint32_t> attempts;
  for (const RunView::Process& process : run.processes) {
    if (process.records_deleted) attempts.insert(process.attempt);
  }
  return attempts;
}

}  // namespace

absl::StatusOr<stored::Check> ReadCheck(const Store& store,
                                        uint64_t run_number) {
  const absl::StatusOr<std::optional<std::string>> value =
      store.Get(Table::kRuns, CheckKey(run_number));
  // Not taken for none: what is there says by which version of its set the run
  // is checked.
  if (absl::IsUnavailable(value.status())) return value.status();
  stored::Check check;
  // A check that is damaged is as good as none: the run is checked from its
  // first batch.
  if (value.ok() && value->has_value() && !check.ParseFromString(**value)) {
    check.Clear();
  }
  return check;
}

LiveCheck::LiveCheck(const Dependencies& dependencies, uint64_t run_number)
    : use_(dependencies),
      run_number_(run_number),
      settled_(std::make_shared<std::atomic<bool>>(false)) {}

bool LiveCheck::Turn(const RunView& run) {
  const bool was_held_up = std::exchange(held_up_, false);
  switch (state_) {
    case State::kNew:
      TakeUp(run);
      break;
    case State::kBeginning:
      Begin(run, from_);
      break;
    case State::kWaitingForSet:
      // OnSet takes the run from those that wait.
      if (!use_.queue->IsWaiting(run.id)) Begin(run, From::kFirstBatch);
      break;
    case State::kFinished:
      // From the state before the end, so that a job that is begun again and
      // again is not read from its first batch each time.
      if (!IsFinished(stored_, run)) Begin(run, From::kSnapshot);
      break;
    case State::kReading:
    case State::kFailed:
      break;
  }
  if (state_ == State::kReading) BeginAnewIfMust(run);
  const bool more = state_ == State::kReading && Read(run);
  // Once, however many turns it takes.
  if (held_up_ && !was_held_up) {
    spdlog::warn("check waits until the store can be read run={} error={}",
                 run.id, QuotePrintable(error_));
  }
  return more;
}

void LiveCheck::TakeUp(const RunView& run) {
  const absl::StatusOr<stored::Check> stored =
      ReadCheck(*use_.store, run_number_);
  if (!stored.ok()) return Fail(run, stored.status());
  stored_ = *stored;
  reported_ = ReportedSoFar(stored_);
  if (IsFinished(stored_, run)) {
    state_ = State::kFinished;
    *settled_ = true;
  } else {
    Begin(run, From::kSnapshot);
  }
}

void LiveCheck::Begin(const RunView& run, From from) {
  state_ = State::kBeginning;
  from_ = from;
  check_.reset();
  stored_.set_finished(false);
  const absl::StatusOr<InvariantSet> set = LoadSet(run);
  if (!set.ok()) {
    Fail(run, set.status());
    // Other errors do not go away when a set is saved.
    if (absl::IsNotFound(set.status())) state_ = State::kWaitingForSet;
    return;
  }
  // Before anything of the run is posted.
  if (absl::Status s = use_.board->TakeOffShelf(run.id); !s.ok()) {
    Fail(run, s);
    return;
  }
  // Before the first batch is read: the sooner the ranks record what the set
  // needs, the fewer windows stay unknown.
  if (use_.plans != nullptr) use_.plans->OnCheckBegins(run, *set);
  next_snapshot_ = absl::Now() + use_.snapshot_every;
  if (from == From::kSnapshot) check_ = Resume(run, *set);
  if (check_ == nullptr) {
    check_ = std::make_unique<RunCheck>(use_.store, run, *set);
  }
  state_ = State::kReading;
  saved_batches_ = check_->batches();
  // From here on the store names the version, and a restarted daemon takes the
  // same one.
  stored_.set_set(ReferenceTo(*set));
  WriteSet writes;
  AddCheck(run, &writes);
  use_.store->Write(std::move(writes), nullptr);
}

void LiveCheck::BeginAnewIfMust(const RunView& run) {
  const std::string why = check_->WhyAnew(run);
  if (why.empty()) return;
  spdlog::info("check begins anew run={} reason=\"{}\"", run.id, why);
  // The next check passes through earlier states of what this one has reported.
  reported_.Add(run, *check_);
  Begin(run, From::kFirstBatch);
}

absl::StatusOr<InvariantSet> LiveCheck::LoadSet(const RunView& run) {
  if (HasNoRecords(run)) {
    return absl::FailedPreconditionError(
        "retention deleted the records before they were checked");
  }
  // The version that the check began with: one check is by one set of rules.
  const std::string& asked =
      stored_.set().empty() ? run.check_set : stored_.set();
  const absl::StatusOr<RuleSelection> selection = ParseSelection(asked);
  if (!selection.ok()) return selection.status();
  std::set<std::string> names;
  for (const SetRef& set : selection->sets) names.insert(set.name);
  // Before looking: a set that is saved in between wakes the run.
  use_.queue->WaitForSets(run.id, std::move(names));
  absl::StatusOr<InvariantSet> set = use_.sets->Load(asked);
  if (absl::IsNotFound(set.status())) {
    return absl::NotFoundError(absl::StrCat(
        set.status().message(),
        "; once it is there the run is checked from its first record"));
  }
  use_.queue->StopWaiting(run.id);
  return set;
}

std::unique_ptr<RunCheck> LiveCheck::Resume(const RunView& run,
                                            const InvariantSet& set) {
  const absl::StatusOr<std::optional<std::string>> value =
      use_.store->Get(Table::kRuns, SnapshotKey(run.number));
  // A snapshot only saves time. Without one, or with one that does not fit, the
  // check reads from the first batch and comes to the same verdicts.
  if (!value.ok() || !value->has_value() || (*value)->empty()) return nullptr;
  auto check = std::make_unique<RunCheck>(use_.store, run, set);
  stored::CheckSnapshot snapshot;
  absl::Status restored = absl::DataLossError("it does not parse");
  if (snapshot.ParseFromString(**value)) restored = check->Restore(snapshot);
  if (!restored.ok()) {
    spdlog::warn("snapshot of a check is left aside run={} reason=\"{}\"",
                 run.id, std::string(restored.message()));
    return nullptr;
  }
  spdlog::info("check resumes run={} batches_read={} of={}", run.id,
               check->batches(), BatchCountOf(run));
  return check;
}

bool LiveCheck::Read(const RunView& run) {
  const absl::StatusOr<bool> more = check_->Advance(run);
  std::string before_end;
  if (more.ok() && check_->all_read()) {
    // The state before the end is judged: from here the check goes on if the
    // run does, since a judgement cannot be taken back.
    before_end = check_->Save().SerializeAsString();
    check_->End();
  }
  Report(run);
  if (!more.ok()) {
    Fail(run, more.status());
    return false;
  }
  if (check_->finished()) Finish(run, before_end);
  return *more;
}

void LiveCheck::Report(const RunView& run) {
  const News news = TakeNews(run);
  // Beside violations that change: the store says in the same write how far
  // they were reported.
  const auto more = [&](WriteSet* writes) {
    ReportedSoFar reported = reported_;
    reported.Add(run, *check_);
    reported.Store(&stored_);
    AddCheck(run, writes);
  };
  WriteSet writes;
  // In one write with what was found up to there: a snapshot without its
  // violations would never find them again.
  if (IsSnapshotDue()) AddSnapshot(run, &writes);
  use_.board->Post(run.number, news.found, news.known, more, std::move(writes));
  // What only an earlier check found, for example under another attempt, would
  // stay beside its like until the run ends.
  if (news.is_all) {
    use_.board->KeepOnly(run.id, news.found, AttemptsWithoutRecords(run));
  }
}

// Where nothing was reported before, all that changes is news. A check that is
// still behind what was reported sees earlier states of the same violations, so
// those that are known stay as they are unless it has seen more of them. Once
// it has caught up, what it has found is all that there is.
LiveCheck::News LiveCheck::TakeNews(const RunView& run) {
  std::vector<Violation> changes = check_->TakeChanges();
  if (reported_.empty()) {
    return {.found = std::move(changes)};
  }
  if (!check_->finished() && !reported_.ReachedBy(run, *check_)) {
    return {.found = std::move(changes), .known = ViolationBoard::Known::kKeep};
  }
  // It has judged all that was judged before: from here on it reports every
  // change, as a check that never began anew.
  reported_.Clear();
  return {.found = check_->checker().Violations(), .is_all = true};
}

// A finished check saves no state here: Finish keeps the one before the end.
bool LiveCheck::IsSnapshotDue() const {
  return absl::Now() >= next_snapshot_ && !check_->finished() &&
         check_->batches() != saved_batches_;
}

void LiveCheck::AddSnapshot(const RunView& run, WriteSet* writes) {
  const absl::Time begin = absl::Now();
  const std::string bytes = check_->Save().SerializeAsString();
  // Packing it takes the worker's time, and writing it the disk's: the longer
  // one counts.
  const absl::Duration cost =
      std::max(absl::Now() - begin, absl::Seconds(bytes.size() / kWriteRate));
  saved_batches_ = check_->batches();
  next_snapshot_ = begin + std::max(use_.snapshot_every, cost / kSnapshotShare);
  spdlog::debug("check saved run={} batches_read={} bytes={} us={}", run.id,
                saved_batches_, bytes.size(), absl::ToInt64Microseconds(cost));
  writes->Put(Table::kRuns, SnapshotKey(run.number), bytes);
}

void LiveCheck::AddCheck(const RunView& run, WriteSet* writes) const {
  writes->Put(Table::kRuns, CheckKey(run.number), stored_.SerializeAsString());
}

// The worker saves each check when the daemon stops. The next daemon then goes
// on from here and not from the last snapshot, which may be snapshot_every old.
void LiveCheck::Save(const RunView& run) {
  if (check_ == nullptr || check_->batches() == saved_batches_) return;
  WriteSet writes;
  AddSnapshot(run, &writes);
  use_.store->Write(std::move(writes), nullptr);
}

void LiveCheck::Fail(const RunView& run, const absl::Status& why) {
  error_ = std::string(why.message());
  if (absl::IsUnavailable(why)) {
    // In the state that it has, with all that it has read.
    held_up_ = true;
    return;
  }
  check_.reset();
  state_ = State::kFailed;
  spdlog::warn("run is not checked run={} error={}", run.id,
               QuotePrintable(error_));
}

void LiveCheck::Finish(const RunView& run, const std::string& before_end) {
  const std::string set = stored_.set();
  reported_.Add(run, *check_);
  // What the checks have reported, and the set, are carried over: the new
  // summary holds neither.
  stored_ = Summarise(check_->checker().Summary());
  stored_.set_set(set);
  reported_.Store(&stored_);
  MarkFinished(run, &stored_);
  // Queued before the result, so that a finished check has its own violations
  // alone.
  use_.board->KeepOnly(run.id, check_->checker().Violations(),
                       AttemptsWithoutRecords(run));
  WriteSet writes;
  // For reviews of rules: a run speaks for a rule only if its check has decided
  // it (RuleReview).
  writes.Put(Table::kRuns, DecidedKey(run.number),
             DecidedBy(check_->checker()).SerializeAsString());
  check_.reset();  // the memory of a whole run
  state_ = State::kFinished;
  AddCheck(run, &writes);
  if (before_end.size() <= kMaxKeptBytes) {
    writes.Put(Table::kRuns, SnapshotKey(run.number), before_end);
  } else {
    writes.Delete(Table::kRuns, SnapshotKey(run.number));
  }
  // A flag for each end: the write of an earlier one must not settle this one.
  settled_ = std::make_shared<std::atomic<bool>>(false);
  use_.store->Write(std::move(writes),
                    [settled = settled_, queue = use_.queue, id = run.id] {
                      *settled = true;
                      queue->WakeLater(id);
                    });
  spdlog::info("check finished run={} set={} decided={} violated={} total={}",
               run.id, QuotePrintable(run.check_set), stored_.decided(),
               stored_.violated(), stored_.total());
}

v1::CheckProgress LiveCheck::Progress(const RunView& run) const {
  if (state_ == State::kFinished) return ToApi(stored_);
  if (check_ != nullptr) {
    return ToApi(Summarise(check_->checker().Summary()));
  }
  v1::CheckProgress progress;
  progress.set_error(error_);
  // Nothing more comes of it: who waits for a verdict must not wait for ever.
  progress.set_finished(run.ended);
  return progress;
}

}  // namespace traincheck::server
