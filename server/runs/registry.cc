#include "server/runs/registry.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/runs/attempts.h"

namespace traincheck::server {
namespace {

std::string Utc(uint64_t unix_ns) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

// "rank 0 of attempt 0 is held by pid 17 on host a since ..."
std::string HeldBy(const stored::Process& process,
                   const stored::Process& holder) {
  const uint64_t since = holder.started_unix_ns() != 0
                             ? holder.started_unix_ns()
                             : holder.state_since_unix_ns();
  return absl::StrCat("rank ", process.rank(), " of attempt ",
                      process.attempt(), " is held by ", ProcessName(holder),
                      " since ", Utc(since));
}

absl::Status CheckOwner(const stored::Run& run, const std::string& owner) {
  if (owner.empty() || run.owner() == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "run ", run.id(),
      " belongs to another owner: give this one another TRAINCHECK_RUN"));
}

}  // namespace

void Registry::PutRun(const RunState& run, WriteSet* writes) {
  writes->Put(Table::kRuns, RunKey(run.run.number()),
              run.run.SerializeAsString());
}

std::string Registry::SelectionFor(const v1::Hello& hello,
                                   const RunState& state) const {
  const std::string& asked = hello.check_set();
  if (selector_ == nullptr || state.run.role() == v1::RUN_ROLE_REFERENCE) {
    return asked;
  }
  // What was decided after a run had begun is for the next one.
  if (asked.empty() && !state.processes.empty()) return "";
  return selector_(state.run.experiment(), state.run.owner(), asked);
}

RunState& Registry::FindOrMakeRun(const v1::Hello& hello,
                                  const std::string& owner, WriteSet* writes) {
  RunState& state = runs_[hello.run()];
  stored::Run& run = state.run;
  if (run.id().empty()) {
    run.set_number(next_run_++);
    run.set_id(hello.run());
    run.set_owner(owner);
    run.set_experiment(hello.experiment());
    run.set_role(hello.role());
    run.set_script(hello.script());
    run.set_started_unix_ns(hello.started_unix_ns() != 0
                                ? hello.started_unix_ns()
                                : absl::ToUnixNanos(options_.now()));
    // In the write that stores the run: after a crash its number, under which
    // its batches lie, is not given again.
    writes->Put(Table::kMeta, kNextRunKey, absl::StrCat(next_run_));
    spdlog::info("run begins run={} experiment={} check_set={}", run.id(),
                 QuotePrintable(run.experiment()),
                 QuotePrintable(hello.check_set()));
  } else if (hello.experiment() != run.experiment() ||
             static_cast<uint32_t>(hello.role()) != run.role()) {
    spdlog::warn(
        "process differs from its run in experiment or role, the run's are "
        "kept run={} experiment={} process_experiment={}",
        run.id(), QuotePrintable(run.experiment()),
        QuotePrintable(hello.experiment()));
  }
  if (run.check_set().empty()) {
    run.set_check_set(SelectionFor(hello, state));
  }
  // Relays come in any order: the run began with its earliest process.
  if (hello.started_unix_ns() != 0) {
    run.set_started_unix_ns(std::min<uint64_t>(run.started_unix_ns(),  //
                                               hello.started_unix_ns()));
  }
  return state;
}

absl::StatusOr<ProcessEntry*> Registry::AddProcess(const v1::Hello& hello,
                                                   RunState* run) {
  // No process leaves its run, so no number is given twice.
  const uint32_t number = run->processes.size();
  if (number >= options_.max_processes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("run ", run->run.id(), " has ", number,
                     " processes, the limit is ", options_.max_processes,
                     ": give further starts another TRAINCHECK_RUN"));
  }
  ProcessEntry& process = run->Add(MakeProcess(hello, number));
  if (const ProcessEntry* owner = run->OwnerOf(process.books)) {
    process.books.set_attempt(owner->books.attempt());
  }
  SetState(stored::STATE_STREAMING, options_.now(), &process.books);
  MarkRunning(run);
  return &process;
}

absl::StatusOr<Registry::Opened> Registry::Open(const v1::Hello& hello,
                                                Admitted admitted,
                                                const std::string& owner) {
  absl::MutexLock lock(&mutex_);
  if (withdrawn_.count(hello.run()) > 0) {
    return absl::UnavailableError(absl::StrCat(
        "run ", hello.run(), " is being deleted: try again in a moment"));
  }
  const auto known = runs_.find(hello.run());
  if (known != runs_.end()) {
    absl::Status may = CheckOwner(known->second.run, owner);
    if (may.ok()) may = TakeOffShelf(&known->second);
    if (!may.ok()) return may;
  }
  // Before the run is made: what is refused leaves none behind.
  absl::Status room = use_of_owners_.CheckRoom(
      known == runs_.end() ? owner : known->second.run.owner());
  if (!room.ok()) return room;
  WriteSet writes;
  RunState& run = FindOrMakeRun(hello, owner, &writes);
  ProcessEntry* process = run.Find(hello.process());
  if (process == nullptr) {
    absl::StatusOr<ProcessEntry*> added = AddProcess(hello, &run);
    if (!added.ok()) return added.status();
    process = *added;
  } else if (process->stream != 0 && !hello.resumes()) {
    return absl::FailedPreconditionError(absl::StrCat(
        ProcessName(process->books), " streams already and this stream does ",
        "not resume (Hello.resumes): is a second relay running for it?"));
  }
  // Also if another process holds its place by now: refused, its relay could
  // only throw its records away, and nobody would know how many.
  process->stream = next_stream_++;
  if (process->books.state() == stored::STATE_SILENT ||
      process->books.state() == stored::STATE_SUPERSEDED) {
    Reopen(&run, process, &writes);
  } else if (!HasEnded(process->books)) {
    SetState(stored::STATE_STREAMING, options_.now(), &process->books);
  }
  PutRun(run, &writes);
  Opened opened = {{run.run.id(), process->books.number(), process->stream},
                   process->books.next_batch(),
                   RingCursors(process->books)};
  Durable durable;
  if (admitted) {
    durable = [opened, admitted = std::move(admitted)](uint64_t) {
      admitted(opened);
    };
  }
  WriteProcess(&run, *process, std::move(writes), std::move(durable));
  return opened;
}

absl::StatusOr<Registry::StreamOwner> Registry::Writer(const StreamId& stream) {
  const auto run = runs_.find(stream.run);
  if (run == runs_.end()) {
    return absl::AbortedError(absl::StrCat("run ", stream.run, " was deleted"));
  }
  const auto process = run->second.processes.find(stream.process);
  if (process == run->second.processes.end() ||
      process->second.stream != stream.stream) {
    return absl::AbortedError(
        absl::StrCat("a newer stream of process ", stream.process, " of run ",
                     stream.run, " has taken over, or its run was deleted"));
  }
  return StreamOwner{&run->second, &process->second};
}

absl::Status Registry::CheckStream(const StreamId& stream) const {
  absl::MutexLock lock(&mutex_);
  const auto run = runs_.find(stream.run);
  // Nobody streams into what is shelved.
  if (run != runs_.end() && run->second.shelved) return absl::OkStatus();
  if (run != runs_.end()) {
    const auto process = run->second.processes.find(stream.process);
    // 0: it said Goodbye and waits for the last answer.
    if (process != run->second.processes.end() &&
        (process->second.stream == stream.stream ||
         process->second.stream == 0)) {
      return absl::OkStatus();
    }
  }
  return absl::AbortedError(
      absl::StrCat("a newer stream of process ", stream.process, " of run ",
                   stream.run, " has taken over, or its run was deleted"));
}

Registry::Durable Registry::Timed(uint64_t bytes, Durable durable) {
  // Counted before the write is queued: the commit thread may call back before
  // AddBatch returns.
  const auto begin = std::chrono::steady_clock::now();
  ++counts_.waiting_batches;
  counts_.waiting_bytes += bytes;
  return [this, begin, bytes,
          durable = std::move(durable)](uint64_t next_batch) {
    const auto passed = std::chrono::steady_clock::now() - begin;
    --counts_.waiting_batches;
    counts_.waiting_bytes -= bytes;
    counts_.durable_us +=
        std::chrono::duration_cast<std::chrono::microseconds>(passed).count();
    ++counts_.durable_batches;
    if (durable) durable(next_batch);
  };
}

void Registry::CountMissing(const MissingRecords& was,
                            const stored::Process& process) {
  const MissingRecords now = MissingOf(process);
  if (now.dropped > was.dropped) {
    counts_.dropped_records += now.dropped - was.dropped;
  }
  // Fewer are lost when some come after all; a counter does not fall.
  if (now.lost > was.lost) counts_.lost_records += now.lost - was.lost;
}

absl::StatusOr<Registry::Fate> Registry::AddBatch(
    const StreamId& stream, const v1::Batch& batch,
    const absl::StatusOr<BatchFacts>& facts, Durable durable) {
  const uint64_t bytes = batch.payload().size();
  const absl::StatusOr<Fate> fate =
      TakeBatch(stream, batch, facts, Timed(bytes, std::move(durable)));
  if (!fate.ok() || *fate == Fate::kDuplicate) {
    // Nobody will say that it is durable.
    --counts_.waiting_batches;
    counts_.waiting_bytes -= bytes;
  }
  if (!fate.ok()) return fate;
  switch (*fate) {
    case Fate::kStored:
      ++counts_.stored_batches;
      counts_.bytes += bytes;
      for (const v1::Slice& slice : batch.slices()) {
        counts_.records += slice.records();
      }
      break;
    case Fate::kDuplicate:
      ++counts_.duplicate_batches;
      break;
    case Fate::kQuarantined:
      ++counts_.quarantined_batches;
      break;
  }
  return fate;
}

absl::StatusOr<Registry::Fate> Registry::TakeBatch(
    const StreamId& stream, const v1::Batch& batch,
    const absl::StatusOr<BatchFacts>& facts, Durable durable) {
  std::string value = batch.SerializeAsString();  // before the lock: large
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<StreamOwner> writer = Writer(stream);
  if (!writer.ok()) return writer.status();
  const auto [run, process] = *writer;
  stored::Process& books = process->books;
  if (batch.number() < books.next_batch()) return Fate::kDuplicate;
  const absl::Status room = use_of_owners_.CheckRoom(run->run.owner());
  if (!room.ok()) return room;
  if (batch.number() > books.next_batch()) {
    spdlog::warn("batches are missing run={} process=\"{}\" first={} next={}",
                 run->run.id(), ProcessName(books), books.next_batch(),
                 batch.number());
  }
  // Also past a batch that will be quarantined: its relay must not send it for
  // ever.
  books.set_next_batch(batch.number() + 1);
  WriteSet writes;
  if (HasEnded(books)) Reopen(run, process, &writes);
  const BatchId id = {run->run.number(), books.number(), batch.number()};
  // Good or not: quarantined batches take room, too.
  use_of_owners_.Add(run->run.owner(), value.size());
  const absl::Status bad =
      facts.ok() ? CheckPositions(books, batch) : facts.status();
  if (bad.ok()) {
    BookBatch(batch, value.size(), &books);
    // Copied only where it is compared: few batches have a place.
    const stored::Process before =
        facts->place || facts->kind ? books : stored::Process();
    const MissingRecords missing = MissingOf(books);
    LearnFacts(*facts, &books);
    CountMissing(missing, books);
    if ((facts->place || facts->kind) && !SamePlace(before, books)) {
      SettlePlace(run, before, process, &writes);
    }
    writes.Put(Table::kBatches, BatchKey(id), std::move(value));
  } else {
    Quarantine(id, bad, std::move(value), process, &writes);
  }
  WriteProcess(run, *process, std::move(writes), std::move(durable));
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
  books.set_quarantined_bytes(books.quarantined_bytes() + batch.size());
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
  MarkRunning(run);
  PutRun(*run, writes);
}

void Registry::MarkRunning(RunState* run) {
  run->run.set_ended_unix_ns(0);
  resting_.erase(run->run.id());
  not_ended_.insert(run->run.id());
}

void Registry::SettlePlace(RunState* run, const stored::Process& before,
                           ProcessEntry* process, WriteSet* writes) {
  stored::Process& books = process->books;
  uint32_t attempt = books.attempt();
  if (IsMain(books) && books.has_rank()) {
    // A process that makes its group anew stays in its attempt.
    const bool known = !books.start().empty() && IsMain(before) &&
                       before.start() == books.start();
    if (!known) attempt = FittingAttempt(*run, books);
  } else if (const ProcessEntry* owner = run->OwnerOf(books)) {
    attempt = owner->books.attempt();
  }
  if (attempt != books.attempt()) {
    spdlog::info(
        "process belongs to another attempt run={} process=\"{}\" "
        "attempt={} announced={}",
        run->run.id(), ProcessName(books), attempt, books.attempt());
    books.set_attempt(attempt);
    PutRun(*run, writes);
    TakeWorkersAlong(run, *process);
  }
  UpdateConflict(*run, process);
}

void Registry::TakeWorkersAlong(RunState* run, const ProcessEntry& owner) {
  for (auto& [number, other] : run->processes) {
    if (IsMain(other.books) || other.books.owner_pid() != owner.books.pid() ||
        run->OwnerOf(other.books) != &owner) {
      continue;
    }
    other.books.set_attempt(owner.books.attempt());
    WriteProcess(run, other, WriteSet(), nullptr);
  }
}

void Registry::UpdateConflict(const RunState& run, ProcessEntry* process) {
  stored::Process& books = process->books;
  const ProcessEntry* holder = run.OtherHolder(books);
  if (holder != nullptr && IsChildOf(books, holder->books)) {
    // It inherited RANK from the process that holds it.
    books.set_kind(v1::PROCESS_KIND_OTHER);
    holder = nullptr;
  }
  const std::string conflict =
      holder == nullptr
          ? std::string()
          : absl::StrCat("not checked: ", HeldBy(books, holder->books),
                         "; give each start its own TRAINCHECK_RUN");
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
  const absl::StatusOr<StreamOwner> writer = Writer(stream);
  if (!writer.ok()) return writer.status();
  stored::Process& books = writer->process->books;
  const MissingRecords missing = MissingOf(books);
  // Not written by itself: the next write of the process has it.
  BookReports(reports.rings(), &books);
  CountMissing(missing, books);
  return absl::OkStatus();
}

absl::Status Registry::End(const StreamId& stream, const v1::Goodbye& goodbye,
                           Durable durable) {
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<StreamOwner> writer = Writer(stream);
  if (!writer.ok()) return writer.status();
  const auto [run, process] = *writer;
  stored::Process& books = process->books;
  const MissingRecords missing = MissingOf(books);
  BookFinalReports(goodbye.rings(), &books);
  CountMissing(missing, books);
  if (goodbye.ended_unix_ns() != 0) {
    books.set_ended_unix_ns(goodbye.ended_unix_ns());
  }
  process->stream = 0;
  // A relay that took over may not have seen the mark that another one
  // delivered.
  const bool clean =
      goodbye.end() == v1::END_KIND_CLEAN || books.clean_exit_seen();
  books.set_replaced(goodbye.end() == v1::END_KIND_REPLACED);
  SetState(clean ? stored::STATE_CLEAN : stored::STATE_DIED, options_.now(),
           &books);
  spdlog::info("process ended run={} process=\"{}\" reason=\"{}\" records={}",
               run->run.id(), ProcessName(books),
               StateReason(books, options_.now(), options_.lost_after),
               books.stored_records());
  WriteProcess(run, *process, WriteSet(), std::move(durable));
  // Its write is queued behind the process's: whoever hears that the run has
  // ended finds the last end in the store.
  EndRunIfDue(run);
  return absl::OkStatus();
}

void Registry::Disconnect(const StreamId& stream) {
  absl::MutexLock lock(&mutex_);
  const absl::StatusOr<StreamOwner> writer = Writer(stream);
  if (!writer.ok()) return;
  const auto [run, process] = *writer;
  process->stream = 0;
  stored::Process& books = process->books;
  if (books.state() != stored::STATE_STREAMING) return;
  spdlog::warn("stream ended without goodbye run={} process=\"{}\"",
               run->run.id(), ProcessName(books));
  SetState(stored::STATE_DISCONNECTED, options_.now(), &books);
  WriteProcess(run, *process, WriteSet(), nullptr);
}

RunState* Registry::FindRun(const std::string& id, uint64_t number) {
  // A run that was withdrawn may come back, and must not wait for a write that
  // was done meanwhile.
  for (auto* const runs : {&runs_, &withdrawn_}) {
    const auto at = runs->find(id);
    if (at != runs->end() && at->second.run.number() == number) {
      return &at->second;
    }
  }
  return nullptr;
}

void Registry::WriteProcess(RunState* run, const ProcessEntry& process,
                            WriteSet writes, Durable durable) {
  const stored::Process& books = process.books;
  // In one write with the batch that the cursor counts: after any crash a batch
  // is stored and counted, or neither.
  writes.Put(Table::kRuns, ProcessKey(run->run.number(), books.number()),
             books.SerializeAsString());
  std::optional<ProcessEnd> end;
  if (HasEnded(books)) end = EndOf(books);
  ++run->pending_writes;
  store_.Write(std::move(writes),
               [this, id = run->run.id(), run_number = run->run.number(),
                number = books.number(), next_batch = books.next_batch(), end,
                durable = std::move(durable)] {
                 {
                   absl::MutexLock lock(&mutex_);
                   if (RunState* written = FindRun(id, run_number)) {
                     --written->pending_writes;
                     ProcessEntry& stored = written->processes.at(number);
                     stored.durable_next_batch = next_batch;
                     stored.durable_end = end;
                   }
                 }
                 // Without the lock: both may call the registry.
                 if (durable) durable(next_batch);
                 if (observer_) observer_(id);
               });
}

}  // namespace traincheck::server
