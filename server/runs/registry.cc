#include "server/runs/registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace traincheck {
namespace {

constexpr char kNextRunKey[] = "next_run";

void PutRun(const RunState& run, WriteSet* writes) {
  writes->Put(Table::kRuns, RunKey(run.run.number()),
              run.run.SerializeAsString());
}

RunView::Process ViewOf(const ProcessEntry& process, absl::Time now,
                        absl::Duration lost_after) {
  return {.number = process.books.number(),
          .next_batch = process.durable_next_batch,
          .end = process.durable_end,
          .refused = !process.books.place_conflict().empty(),
          .connected = process.stream != 0,
          .is_main = IsMain(process.books),
          .attempt = process.books.attempt(),
          .rank = process.books.has_rank()
                      ? std::optional<int32_t>(process.books.rank())
                      : std::nullopt,
          .world = process.books.world(),
          .name = ProcessName(process.books),
          .reason = StateReason(process.books, now, lost_after)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Registry>> Registry::Load(Store* store,
                                                         Options options) {
  std::unique_ptr<Registry> registry(new Registry(store, std::move(options)));
  absl::MutexLock lock(&registry->mutex_);
  if (absl::Status status = registry->LoadRuns(); !status.ok()) return status;
  if (absl::Status status = registry->LoadProcesses(); !status.ok()) {
    return status;
  }
  return registry;
}

absl::Status Registry::LoadRuns() {
  absl::StatusOr<std::optional<std::string>> next =
      store_.Get(Table::kMeta, kNextRunKey);
  if (!next.ok()) return next.status();
  if (next->has_value() && !absl::SimpleAtoi(**next, &next_run_)) {
    return absl::DataLossError("meta key next_run is no number");
  }
  absl::Status bad;
  const absl::Status scanned = store_.Scan(
      Table::kRuns, "r", PrefixEnd("r"),
      [&](std::string_view, std::string_view value)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
            stored::Run run;
            if (!run.ParseFromArray(value.data(), value.size())) {
              bad = absl::DataLossError("a stored run does not parse");
              return false;
            }
            if (run.ended_unix_ns() == 0) not_ended_.insert(run.id());
            runs_[run.id()].run = std::move(run);
            return true;
          });
  return scanned.ok() ? bad : scanned;
}

absl::Status Registry::LoadProcesses() {
  const absl::Time now = options_.now();
  for (auto& entry : runs_) {
    RunState& run = entry.second;
    absl::Status bad;
    const std::string first = ProcessKey(run.run.number(), 0);
    const std::string prefix = first.substr(0, first.size() - 4);
    const absl::Status scanned = store_.Scan(
        Table::kRuns, prefix, PrefixEnd(prefix),
        [&](std::string_view, std::string_view value)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
              ProcessEntry process;
              if (!process.books.ParseFromArray(value.data(), value.size())) {
                bad = absl::DataLossError("a stored process does not parse");
                return false;
              }
              if (HasEnded(process.books)) {
                process.durable_end = EndOf(process.books);
              } else {
                SetState(stored::STATE_DISCONNECTED, now, &process.books);
              }
              process.durable_next_batch = process.books.next_batch();
              quarantined_batches_ += process.books.quarantined_batches();
              run.processes[process.books.number()] = std::move(process);
              return true;
            });
    if (!scanned.ok()) return scanned;
    if (!bad.ok()) return bad;
  }
  return absl::OkStatus();
}

RunState& Registry::FindOrMakeRun(const v1::Hello& hello, WriteSet* writes) {
  RunState& state = runs_[hello.run()];
  stored::Run& run = state.run;
  if (run.id().empty()) {
    run.set_number(next_run_++);
    run.set_id(hello.run());
    run.set_experiment(hello.experiment());
    run.set_role(hello.role());
    run.set_script(hello.script());
    run.set_started_unix_ns(hello.started_unix_ns() != 0
                                ? hello.started_unix_ns()
                                : absl::ToUnixNanos(options_.now()));
    writes->Put(Table::kMeta, kNextRunKey, absl::StrCat(next_run_));
    spdlog::info("run begins run={} experiment={} check_set={}", run.id(),
                 run.experiment(), hello.check_set());
  } else if (hello.experiment() != run.experiment() ||
             static_cast<uint32_t>(hello.role()) != run.role()) {
    spdlog::warn(
        "process differs from its run in experiment or role, the run's are "
        "kept run={} experiment={} process_experiment={}",
        run.id(), run.experiment(), hello.experiment());
  }
  if (run.check_set().empty()) run.set_check_set(hello.check_set());
  if (hello.started_unix_ns() != 0) {
    run.set_started_unix_ns(std::min<uint64_t>(run.started_unix_ns(),  //
                                               hello.started_unix_ns()));
  }
  return state;
}

ProcessEntry& Registry::AddProcess(const v1::Hello& hello, RunState* run) {
  const uint32_t number = run->processes.size();
  ProcessEntry& process = run->processes[number];
  process.books = MakeProcess(hello, number);
  SetState(stored::STATE_STREAMING, options_.now(), &process.books);
  run->run.set_ended_unix_ns(0);
  not_ended_.insert(run->run.id());
  return process;
}

absl::StatusOr<Registry::Opened> Registry::Open(const v1::Hello& hello,
                                                Durable durable) {
  absl::MutexLock lock(&mutex_);
  WriteSet writes;
  RunState& run = FindOrMakeRun(hello, &writes);
  ProcessEntry* process = run.Find(hello.process());
  if (process == nullptr) {
    process = &AddProcess(hello, &run);
  } else if (process->stream != 0 && !hello.resumes()) {
    return absl::FailedPreconditionError(absl::StrCat(
        ProcessName(process->books), " streams already and this stream does ",
        "not resume (Hello.resumes): is a second relay running for it?"));
  }
  if (const ProcessEntry* holder = run.OtherHolder(process->books)) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", process->books.rank(), " of attempt ",
                     process->books.attempt(), " of run ", run.run.id(),
                     " is held by ", ProcessName(holder->books),
                     ": give each start its own TRAINCHECK_RUN"));
  }
  process->stream = next_stream_++;
  if (process->books.state() == stored::STATE_SILENT) {
    Reopen(&run, process, &writes);
  } else if (!HasEnded(process->books)) {
    SetState(stored::STATE_STREAMING, options_.now(), &process->books);
  }
  PutRun(run, &writes);
  WriteProcess(run, *process, std::move(writes), std::move(durable));
  return Opened{{run.run.id(), process->books.number(), process->stream},
                process->books.next_batch()};
}

absl::StatusOr<ProcessEntry*> Registry::Writer(const StreamId& stream,
                                               RunState** run) {
  RunState& state = runs_.at(stream.run);
  ProcessEntry& process = state.processes.at(stream.process);
  if (process.stream != stream.stream) {
    return absl::AbortedError(absl::StrCat(
        "a newer stream of ", ProcessName(process.books), " has taken over"));
  }
  if (run != nullptr) *run = &state;
  return &process;
}

absl::StatusOr<Registry::Fate> Registry::AddBatch(
    const StreamId& stream, const v1::Batch& batch,
    const absl::StatusOr<BatchFacts>& facts, Durable durable) {
  std::string value = batch.SerializeAsString();  // before the lock: large
  absl::MutexLock lock(&mutex_);
  RunState* run = nullptr;
  absl::StatusOr<ProcessEntry*> writer = Writer(stream, &run);
  if (!writer.ok()) return writer.status();
  ProcessEntry* process = *writer;
  stored::Process& books = process->books;
  if (batch.number() < books.next_batch()) return Fate::kDuplicate;
  if (batch.number() > books.next_batch()) {
    spdlog::warn("batches are missing run={} process=\"{}\" first={} next={}",
                 run->run.id(), ProcessName(books), books.next_batch(),
                 batch.number());
  }
  books.set_next_batch(batch.number() + 1);
  WriteSet writes;
  if (HasEnded(books)) Reopen(run, process, &writes);
  const BatchId id = {run->run.number(), books.number(), batch.number()};
  const absl::Status bad =
      facts.ok() ? CheckPositions(books, batch) : facts.status();
  if (bad.ok()) {
    BookBatch(batch, value.size(), &books);
    LearnFacts(*facts, &books);
    if (facts->place || facts->kind) UpdateConflict(*run, process);
    writes.Put(Table::kBatches, BatchKey(id), std::move(value));
  } else {
    Quarantine(id, bad, std::move(value), process, &writes);
  }
  WriteProcess(*run, *process, std::move(writes), std::move(durable));
  return bad.ok() ? Fate::kStored : Fate::kQuarantined;
}

void Registry::Quarantine(const BatchId& id, const absl::Status& reason,
                          std::string batch, ProcessEntry* process,
                          WriteSet* writes) {
  stored::Process& books = process->books;
  const std::string text(reason.message());
  spdlog::warn(
      "batch quarantined run_number={} process=\"{}\" batch={} "
      "error=\"{}\"",
      id.run, ProcessName(books), id.batch, text);
  books.set_quarantined_batches(books.quarantined_batches() + 1);
  ++quarantined_batches_;
  stored::Quarantined quarantined;
  quarantined.set_reason(text);
  quarantined.set_unix_ns(absl::ToUnixNanos(options_.now()));
  quarantined.set_batch(std::move(batch));
  writes->Put(Table::kQuarantine, BatchKey(id),
              quarantined.SerializeAsString());
}

void Registry::Reopen(RunState* run, ProcessEntry* process, WriteSet* writes) {
  spdlog::info("process sends again run={} process=\"{}\"", run->run.id(),
               ProcessName(process->books));
  SetState(stored::STATE_STREAMING, options_.now(), &process->books);
  run->run.set_ended_unix_ns(0);
  not_ended_.insert(run->run.id());
  PutRun(*run, writes);
}

void Registry::UpdateConflict(const RunState& run, ProcessEntry* process) {
  stored::Process& books = process->books;
  const ProcessEntry* holder = run.OtherHolder(books);
  const std::string conflict =
      holder == nullptr
          ? std::string()
          : absl::StrCat("not checked: rank ", books.rank(), " of attempt ",
                         books.attempt(), " is held by ",
                         ProcessName(holder->books));
  if (conflict == books.place_conflict()) return;
  if (!conflict.empty()) {
    spdlog::warn(
        "two processes hold one rank run={} process=\"{}\" "
        "reason=\"{}\"",
        run.run.id(), ProcessName(books), conflict);
  }
  books.set_place_conflict(conflict);
}

absl::Status Registry::Report(const StreamId& stream,
                              const v1::RingReports& reports) {
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<ProcessEntry*> process = Writer(stream, nullptr);
  if (!process.ok()) return process.status();
  BookReports(reports.rings(), &(*process)->books);
  return absl::OkStatus();
}

absl::Status Registry::End(const StreamId& stream, const v1::Goodbye& goodbye,
                           Durable durable) {
  absl::MutexLock lock(&mutex_);
  RunState* run = nullptr;
  absl::StatusOr<ProcessEntry*> writer = Writer(stream, &run);
  if (!writer.ok()) return writer.status();
  ProcessEntry* process = *writer;
  stored::Process& books = process->books;
  BookReports(goodbye.rings(), &books);
  books.set_counters_final(true);
  process->stream = 0;
  const bool clean =
      goodbye.end() == v1::END_KIND_CLEAN || books.clean_exit_seen();
  SetState(clean ? stored::STATE_CLEAN : stored::STATE_DIED, options_.now(),
           &books);
  spdlog::info("process ended run={} process=\"{}\" reason=\"{}\" records={}",
               run->run.id(), ProcessName(books),
               StateReason(books, options_.now(), options_.lost_after),
               books.stored_records());
  WriteProcess(*run, *process, WriteSet(), std::move(durable));
  EndRunIfDue(run);
  return absl::OkStatus();
}

void Registry::Disconnect(const StreamId& stream) {
  absl::MutexLock lock(&mutex_);
  RunState* run = nullptr;
  absl::StatusOr<ProcessEntry*> process = Writer(stream, &run);
  if (!process.ok()) return;
  (*process)->stream = 0;
  stored::Process& books = (*process)->books;
  if (books.state() != stored::STATE_STREAMING) return;
  spdlog::warn("stream ended without goodbye run={} process=\"{}\"",
               run->run.id(), ProcessName(books));
  SetState(stored::STATE_DISCONNECTED, options_.now(), &books);
  WriteProcess(*run, **process, WriteSet(), nullptr);
}

void Registry::Tick() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = options_.now();
  const std::set<std::string> candidates = not_ended_;
  for (const std::string& id : candidates) {
    RunState& run = runs_.at(id);
    for (auto& [number, process] : run.processes) {
      stored::Process& books = process.books;
      const absl::Duration since =
          now - absl::FromUnixNanos(books.state_since_unix_ns());
      if (books.state() != stored::STATE_DISCONNECTED ||
          since < options_.lost_after) {
        continue;
      }
      SetState(stored::STATE_SILENT, now, &books);
      spdlog::warn("process lost run={} process=\"{}\" silent_s={}", id,
                   ProcessName(books), absl::ToInt64Seconds(since));
      WriteProcess(run, process, WriteSet(), nullptr);
    }
    EndRunIfDue(&run);
  }
}

void Registry::EndRunIfDue(RunState* run) {
  const auto end = EndTime(*run, options_.now(), options_.end_grace);
  if (!end.has_value() || run->run.ended_unix_ns() != 0) return;
  run->run.set_ended_unix_ns(absl::ToUnixNanos(*end));
  not_ended_.erase(run->run.id());
  spdlog::info("run ended run={}", run->run.id());
  WriteSet writes;
  PutRun(*run, &writes);
  store_.Write(std::move(writes), [this, id = run->run.id()] {
    if (observer_) observer_(id);
  });
}

void Registry::WriteProcess(const RunState& run, const ProcessEntry& process,
                            WriteSet writes, Durable durable) {
  const stored::Process& books = process.books;
  writes.Put(Table::kRuns, ProcessKey(run.run.number(), books.number()),
             books.SerializeAsString());
  std::optional<ProcessEnd> end;
  if (HasEnded(books)) end = EndOf(books);
  store_.Write(
      std::move(writes),
      [this, id = run.run.id(), number = books.number(),
       next_batch = books.next_batch(), end, durable = std::move(durable)] {
        {
          absl::MutexLock lock(&mutex_);
          ProcessEntry& stored = runs_.at(id).processes.at(number);
          stored.durable_next_batch = next_batch;
          stored.durable_end = end;
        }
        if (durable) durable(next_batch);
        if (observer_) observer_(id);
      });
}

std::vector<v1::Run> Registry::Runs() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Run> runs;
  for (const auto& [id, run] : runs_) {
    runs.push_back(ToApi(run, options_.now(), options_.lost_after));
  }
  std::sort(runs.begin(), runs.end(), [](const v1::Run& a, const v1::Run& b) {
    return a.started_unix_ns() < b.started_unix_ns();
  });
  return runs;
}

std::vector<v1::Run> Registry::RunsNotEnded() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Run> runs;
  for (const std::string& id : not_ended_) {
    runs.push_back(ToApi(runs_.at(id), options_.now(), options_.lost_after));
  }
  return runs;
}

std::optional<v1::Run> Registry::Run(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  return ToApi(at->second, options_.now(), options_.lost_after);
}

std::optional<RunView> Registry::View(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  const RunState& run = at->second;
  RunView view = {.id = id,
                  .number = run.run.number(),
                  .experiment = run.run.experiment(),
                  .check_set = run.run.check_set(),
                  .ended = run.run.ended_unix_ns() != 0,
                  .processes = {}};
  for (const auto& [number, process] : run.processes) {
    view.processes.push_back(
        ViewOf(process, options_.now(), options_.lost_after));
  }
  return view;
}

std::vector<std::string> Registry::RunIds() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  return ids;
}

uint64_t Registry::quarantined_batches() const {
  absl::MutexLock lock(&mutex_);
  return quarantined_batches_;
}

}  // namespace traincheck
