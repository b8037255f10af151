#include "server/jobs/inference_jobs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "invariants/relations/registry.h"
#include "server/store/batch_reader.h"

namespace traincheck {
namespace {

// Share of the bar that reading fills; the rest is learning.
constexpr double kReadingShare = 0.5;

std::vector<std::string> SortedRuns(const v1::InferRequest& request) {
  std::vector<std::string> runs(request.runs().begin(), request.runs().end());
  std::sort(runs.begin(), runs.end());
  runs.erase(std::unique(runs.begin(), runs.end()), runs.end());
  return runs;
}

// "; pid 7 on host a died at step 3: ..." for every process that did not end
// in order: its rules come from the part that there is.
std::string Shortcomings(const RunView& run) {
  std::string text;
  for (const RunView::Process& process : run.processes) {
    if (process.end.has_value() && *process.end != ProcessEnd::kClean) {
      absl::StrAppend(&text, "; ", process.name, " ", process.reason);
    }
  }
  return text;
}

absl::Status CheckRelations(const v1::InferRequest& request) {
  for (const std::string& name : request.relations()) {
    if (FindRelation(name) != nullptr) continue;
    std::string known;
    for (const Relation* relation : Relations()) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", relation->name());
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", name, "\" is no relation of this version; it has ", known));
  }
  return absl::OkStatus();
}

}  // namespace

InferenceJob::Snapshot InferenceJob::Wait(uint64_t after,
                                          absl::Duration patience) const {
  absl::MutexLock lock(&mutex_);
  const auto changed = [this, after]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return now_.revision > after;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&changed), patience);
  return now_;
}

void InferenceJob::Report(const std::string& stage, double fraction) {
  absl::MutexLock lock(&mutex_);
  ++now_.revision;
  now_.stage = stage;
  now_.fraction = fraction;
}

void InferenceJob::Finish(absl::StatusOr<v1::InferResult> result) {
  absl::MutexLock lock(&mutex_);
  ++now_.revision;
  now_.done = true;
  now_.status = result.status();
  if (!result.ok()) return;
  now_.stage = "done";
  now_.fraction = 1;
  now_.result = *std::move(result);
}

InferenceJobs::InferenceJobs(Dependencies dependencies)
    : use_(std::move(dependencies)), thread_([this] { Loop(); }) {}

InferenceJobs::~InferenceJobs() {
  Stop(absl::InfiniteDuration());
  if (thread_.joinable()) thread_.join();
}

absl::Status InferenceJobs::Check(const v1::InferRequest& request) const {
  if (absl::Status s = CheckSetName(request.set()); !s.ok()) return s;
  if (request.runs().empty()) {
    return absl::InvalidArgumentError("no run to learn from was named");
  }
  if (absl::Status s = CheckRelations(request); !s.ok()) return s;
  for (const std::string& id : request.runs()) {
    const std::optional<RunView> run = use_.registry->View(id);
    if (!run.has_value()) {
      return absl::NotFoundError(
          absl::StrCat("there is no run \"", id, "\": see the list of runs"));
    }
    if (!run->ended) {
      return absl::FailedPreconditionError(absl::StrCat(
          "run ", id, " has not ended: learn from it when it has, ",
          "or name other runs"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<InferenceJob>> InferenceJobs::Start(
    const v1::InferRequest& request) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  auto job = std::make_shared<InferenceJob>(request);
  job->Report("waiting", 0);
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError("traincheckd is stopping");
  queue_.push_back(job);
  return job;
}

bool InferenceJobs::Stop(absl::Duration patience) {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !working_;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), patience);
}

bool InferenceJobs::stopping() const {
  absl::MutexLock lock(&mutex_);
  return stopping_;
}

void InferenceJobs::Loop() {
  while (true) {
    std::shared_ptr<InferenceJob> job;
    {
      absl::MutexLock lock(&mutex_);
      working_ = false;
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;
      job = queue_.front();
      queue_.pop_front();
      working_ = true;
    }
    absl::StatusOr<v1::InferResult> result = Run(job.get());
    if (result.ok()) {
      spdlog::info("inference done set={} version={} invariants={}",
                   result->set(), result->version(), result->invariants());
    } else {
      spdlog::warn("inference failed set={} error=\"{}\"", job->request().set(),
                   std::string(result.status().message()));
    }
    job->Finish(std::move(result));
  }
}

absl::StatusOr<v1::InferResult> InferenceJobs::Run(InferenceJob* job) {
  const v1::InferRequest& request = job->request();
  const std::vector<std::string> runs = SortedRuns(request);
  Inference inference(
      {.relations = {request.relations().begin(), request.relations().end()}});
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::optional<RunView> run = use_.registry->View(runs[i]);
    if (!run.has_value()) return absl::NotFoundError("run " + runs[i]);
    job->Report(absl::StrCat("reading ", run->id, Shortcomings(*run)),
                kReadingShare * i / runs.size());
    absl::Status read = Read(*run, &inference);
    if (!read.ok()) return read;
  }
  job->Report("learning", kReadingShare);
  InferenceResult learned = inference.Finish([job](double fraction) {
    job->Report("learning", kReadingShare + (1 - kReadingShare) * fraction);
  });
  if (stopping()) return absl::UnavailableError("traincheckd is stopping");
  InvariantSet set = {
      .name = request.set(),
      .runs = runs,
      .created_unix_ns = static_cast<uint64_t>(absl::ToUnixNanos(use_.now())),
      .invariants = std::move(learned.invariants)};
  absl::StatusOr<v1::SetSummary> saved = use_.sets->Save(std::move(set));
  if (!saved.ok()) return saved.status();
  v1::InferResult result;
  result.set_set(saved->name());
  result.set_version(saved->version());
  result.set_invariants(saved->invariants());
  result.mutable_runs()->Assign(runs.begin(), runs.end());
  for (const auto& [reason, hypotheses] : learned.dropped) {
    v1::UnknownReason* dropped = result.add_dropped();
    dropped->set_reason(reason);
    dropped->set_invariants(hypotheses);
  }
  return result;
}

absl::Status InferenceJobs::Read(const RunView& run, Inference* inference) {
  inference->BeginRun(run.id, run.experiment);
  for (const RunView::Process& process : run.processes) {
    if (process.refused) continue;
    bool stopped = false;
    const absl::Status read =
        ReadBatches(*use_.store, {run.number, process.number, 0},
                    process.next_batch, [&](const StoredBatch& batch) {
                      inference->Consume(process.number, batch);
                      stopped = stopping();
                      return !stopped;
                    });
    if (!read.ok()) return read;
    if (stopped) return absl::UnavailableError("traincheckd is stopping");
    inference->EndProcess(process.number,
                          process.end.value_or(ProcessEnd::kLost));
  }
  inference->EndRun();
  return absl::OkStatus();
}

}  // namespace traincheck
