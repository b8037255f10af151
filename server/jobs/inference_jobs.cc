#include "server/jobs/inference_jobs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "server/jobs/limits.h"
#include "server/jobs/request_check.h"

namespace traincheck::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr char kStopping[] = "traincheckd is stopping";
constexpr char kStopped[] = "traincheckd stopped while it ran";
constexpr char kCancelled[] = "cancelled";

// In the order in which the set lists them, and each once: a run that is named
// twice must not count twice as support of a rule.
std::vector<std::string> SortedRuns(const v1::InferRequest& request) {
  std::vector<std::string> runs(request.runs().begin(), request.runs().end());
  std::sort(runs.begin(), runs.end());
  runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
  return runs;
}

// A set without rules would pass whatever is checked against it.
absl::Status NothingLearned(const std::map<std::string, uint32_t>& dropped) {
  std::string text = "no rule was learned, so no set is saved";
  for (const auto& [reason, hypotheses] : dropped) {
    absl::StrAppend(&text, "; ", hypotheses, " hypotheses dropped: ", reason);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      text,
      ". Learn from runs that trained for some steps and came to their "
      "end, from more of them, or with fewer options that leave rules "
      "out"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<InferenceJobs>> InferenceJobs::Open(
    Dependencies dependencies) {
  absl::StatusOr<std::unique_ptr<JobBook>> book =
      JobBook::Load(dependencies.store, dependencies.now);
  if (!book.ok()) return book.status();
  return std::unique_ptr<InferenceJobs>(
      new InferenceJobs(std::move(dependencies), *std::move(book)));
}

InferenceJobs::InferenceJobs(Dependencies dependencies,
                             std::unique_ptr<JobBook> book)
    : use_(std::move(dependencies)), book_(std::move(book)) {
  {
    absl::MutexLock lock(&mutex_);
    // Jobs of an earlier daemon hold their runs before anybody can delete one.
    for (const v1::Job& job : book_->List()) {
      if (!HasEnded(job)) pins_[job.id()] = Hold(job.request());
    }
  }
  thread_ = std::thread([this] { Loop(); });
}

InferenceJobs::~InferenceJobs() {
  Stop(absl::InfiniteDuration());
  if (thread_.joinable()) thread_.join();
}

// Each run is held once, since a request may name it twice.
std::vector<RunPins::Pin> InferenceJobs::Hold(
    const v1::InferRequest& request) const {
  std::vector<RunPins::Pin> pins;
  for (const std::string& run : SortedRuns(request)) {
    pins.push_back(use_.pins->Hold(run));
  }
  return pins;
}

// The request is checked before the job is queued: its client is still there to
// hear what is wrong.
absl::Status InferenceJobs::Check(const v1::InferRequest& request) const {
  if (absl::Status s = CheckRequest(request); !s.ok()) return s;
  for (const std::string& id : request.runs()) {
    const absl::StatusOr<RunView> run = use_.registry->View(id);
    if (!run.ok()) return run.status();
    if (!run->ended) {
      return absl::FailedPreconditionError(absl::StrCat(
          "run ", id, " has not ended: learn from it when it has, ",
          "or name other runs"));
    }
    if (run->records_deleted) {
      return absl::FailedPreconditionError(
          absl::StrCat("the records of run ", id,
                       " were deleted by retention: name other runs"));
    }
    if (absl::Status s = CheckContent(*run); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> InferenceJobs::Start(const v1::InferRequest& request,
                                             const std::string& owner) {
  // Held first and looked for then, see RunPins.
  std::vector<RunPins::Pin> pins = Hold(request);
  if (absl::Status status = Check(request); !status.ok()) return status;
  // And again when it is saved: others may be faster.
  if (absl::Status status = use_.sets->CheckOwner(request.set(), owner);
      !status.ok()) {
    return status;
  }
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::UnavailableError(kStopping);
  }
  absl::StatusOr<v1::Job> job = book_->Add(request, owner);
  if (!job.ok()) return job.status();
  absl::MutexLock lock(&mutex_);
  new_job_ = true;
  // It may be over by now, if another one has just woken the thread.
  const absl::StatusOr<v1::Job> now = book_->Find(job->id());
  if (now.ok() && !HasEnded(*now)) pins_[job->id()] = std::move(pins);
  return job;
}

absl::StatusOr<v1::Job> InferenceJobs::Cancel(const std::string& id) {
  if (!CancelRunning(id)) {
    // Its write is queued before this one.
    absl::Status durable = use_.store->WriteAndWait(WriteSet(), kPatience);
    if (!durable.ok()) return durable;
  }
  return book_->Find(id);
}

bool InferenceJobs::CancelRunning(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  // Under the lock under which jobs are taken: it cannot begin meanwhile.
  if (running_.id != id) {
    book_->End(id, v1::JOB_STATUS_CANCELLED, kCancelled);
    pins_.erase(id);
    return false;
  }
  if (!running_.saving) {
    // The job ends by its process: the channel breaks, and its thread finds the
    // flag (Failed).
    running_.cancelled = true;
    if (running_.process != nullptr) running_.process->Kill();
  }
  return true;
}

bool InferenceJobs::Stop(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  // The thread hears of it by its channel, which breaks.
  if (running_.process != nullptr) running_.process->Kill();
  // The thread may wait for the disk while it saves a set, so it is given a
  // time and not joined here.
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !working_;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), patience);
}

void InferenceJobs::Loop() {
  while (true) {
    std::optional<v1::Job> job;
    {
      absl::MutexLock lock(&mutex_);
      running_ = Running();
      working_ = false;
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || new_job_;
      };
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      // Taken and noted as running under one lock: Cancel finds a job either
      // waiting or here.
      job = book_->TakeNext();
      if (!job.has_value()) {
        // Start sets it under the same lock, behind the job that it has added:
        // none is overlooked.
        new_job_ = false;
        continue;
      }
      working_ = true;
      running_.id = job->id();
    }
    Execute(*job);
    absl::MutexLock lock(&mutex_);
    pins_.erase(job->id());
  }
}

bool InferenceJobs::Attach(WorkerProcess* process) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || running_.cancelled) return false;
  running_.process = process;
  return true;
}

bool InferenceJobs::Detach() {
  absl::MutexLock lock(&mutex_);
  running_.process = nullptr;
  // Decided under the lock: a job is either cancelled or saved.
  running_.saving = !stopping_ && !running_.cancelled;
  return running_.saving;
}

// The jobs' thread runs this. Every way out leaves the job with an end.
void InferenceJobs::Execute(const v1::Job& job) {
  absl::StatusOr<LearningSession::Learned> learned = LearnInProcess(job);
  if (!learned.ok()) return Failed(job, learned.status());
  const absl::Status saved = SaveSet(job, *std::move(learned));
  if (!saved.ok()) Failed(job, saved);
}

void InferenceJobs::Failed(const v1::Job& job, const absl::Status& why) {
  bool cancelled = false;
  std::string reason(why.message());
  {
    absl::MutexLock lock(&mutex_);
    cancelled = running_.cancelled;
    if (stopping_) reason = kStopped;
  }
  // Also where it failed by itself in that moment: what was asked for has
  // happened.
  if (cancelled) reason = kCancelled;
  spdlog::warn("inference {} job={} set={} reason=\"{}\"",
               cancelled ? "cancelled" : "failed", job.id(),
               job.request().set(), reason);
  book_->End(job.id(),
             cancelled ? v1::JOB_STATUS_CANCELLED : v1::JOB_STATUS_FAILED,
             reason);
}

// Views are taken when the job runs, not when it was queued: a run may have
// gone on since then.
absl::StatusOr<std::vector<RunView>> InferenceJobs::Views(
    const v1::Job& job) const {
  std::vector<RunView> views;
  for (const std::string& id : SortedRuns(job.request())) {
    absl::StatusOr<RunView> run = use_.registry->View(id);
    if (!run.ok()) return run.status();
    views.push_back(*std::move(run));
  }
  return views;
}

absl::StatusOr<LearningSession::Learned> InferenceJobs::LearnInProcess(
    const v1::Job& job) {
  const absl::StatusOr<std::vector<RunView>> runs = Views(job);
  if (!runs.ok()) return runs.status();
  absl::StatusOr<std::unique_ptr<WorkerProcess>> process = WorkerProcess::Start(
      {.memory_bytes = use_.memory_bytes,
       .on_peak = [this, id = job.id()](
                      uint64_t bytes) { book_->ReportPeak(id, bytes); },
       .program = use_.worker_program});
  if (!process.ok()) return process.status();
  LearningSession session(
      use_.store, process->get(),
      [this, id = job.id()](const std::string& stage, double fraction) {
        book_->Report(id, stage, fraction);
      });
  absl::Status interrupted = absl::CancelledError(kCancelled);
  // Cancel may have come between TakeNext and here, when there was no process
  // that it could kill.
  if (!Attach(process->get())) return interrupted;
  absl::StatusOr<LearningSession::Learned> learned =
      session.Learn(*runs, job.request());
  // Before the process object goes: Cancel and Stop must not kill by a pointer
  // to it, and no set is saved of a job that was cancelled.
  if (!Detach()) return interrupted;
  return learned;
}

absl::Status InferenceJobs::SaveSet(const v1::Job& job,
                                    LearningSession::Learned learned) {
  if (learned.set.invariants.empty()) {
    return NothingLearned(learned.dropped);
  }
  InvariantSet set = std::move(learned.set);
  set.name = job.request().set();
  set.runs = SortedRuns(job.request());
  set.created_unix_ns = absl::ToUnixNanos(use_.now());
  for (Invariant& invariant : set.invariants) {
    // The rule keeps it when sets are merged or exported, which have times of
    // their own.
    invariant.origin["learned_unix_ns"] = set.created_unix_ns;
  }
  book_->Report(job.id(), "saving", 1);
  v1::Job finished;
  const absl::StatusOr<v1::SetSummary> saved = use_.sets->Save(
      set,
      [&](const v1::SetSummary& summary, WriteSet* writes) {
        v1::InferResult result;
        result.set_job(job.id());
        result.set_set(summary.name());
        result.set_version(summary.version());
        result.set_invariants(summary.invariants());
        *result.mutable_runs() = summary.runs();
        for (const auto& [reason, hypotheses] : learned.dropped) {
          v1::UnknownReason& dropped = *result.add_dropped();
          dropped.set_reason(reason);
          dropped.set_invariants(hypotheses);
        }
        // The set and its job in one write: a crash leaves both or neither.
        finished = book_->Finished(job.id(), result, writes);
      },
      job.owner());
  if (!saved.ok()) return saved.status();
  book_->Done(finished);
  spdlog::info("inference done job={} set={} version={} invariants={}",
               job.id(), saved->name(), saved->version(), saved->invariants());
  return absl::OkStatus();
}

}  // namespace traincheck::server
