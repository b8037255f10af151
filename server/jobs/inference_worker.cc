#include "server/jobs/inference_worker.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sanitized.h"
#include "inference/inference.h"
#include "invariants/sets/set_json.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/jobs/limits.h"
#include "server/jobs/message_channel.h"
#include "server/jobs/process_memory.h"
#include "server/jobs/worker.pb.h"
#include "server/store/batch_reader.h"

namespace traincheck::server {
namespace {

// A tenth of the share of a process at 0: checks and trainings beside it do
// not notice, and on a busy machine it still gets on.
constexpr int kNice = 10;

// Without unwinding, which may need memory itself. The exit code is what the
// daemon makes its words from (WorkerProcess::Describe).
[[noreturn]] void OutOfMemory() { _exit(kWorkerOutOfMemory); }

// The machine's memory runs out: this process first, not the daemon.
void VolunteerForTheOomKiller() {
  std::ofstream("/proc/self/oom_score_adj") << "1000\n";
}

// False if the daemon is gone already.
bool SetUpProcess(uint64_t memory_bytes, pid_t daemon) {
  prctl(PR_SET_NAME, "traincheckd-job");
  // Also while it computes and reads nothing that would end.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before the signal was asked for.
  if (getppid() != daemon) return false;
  setpriority(PRIO_PROCESS, 0, kNice);
  VolunteerForTheOomKiller();
  // Each arena reserves address space, which the limit counts.
  mallopt(M_ARENA_MAX, 2);
  const rlimit memory = {.rlim_cur = memory_bytes, .rlim_max = memory_bytes};
  // Sanitizers map far more than any limit.
  if (!kSanitized) setrlimit(RLIMIT_AS, &memory);
  const rlimit no_core = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::set_new_handler(OutOfMemory);
  return true;
}

absl::StatusOr<ProcessEnd> ToProcessEnd(worker::End end) {
  switch (end) {
    case worker::END_CLEAN:
      return ProcessEnd::kClean;
    case worker::END_DIED:
      return ProcessEnd::kDied;
    case worker::END_LOST:
      return ProcessEnd::kLost;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("EndProcess.end is ", static_cast<int>(end)));
  }
}

std::vector<std::string> Texts(
    const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

InferenceOptions OptionsOf(const v1::InferRequest& request) {
  const v1::InferOptions& asked = request.options();
  InferenceOptions options;
  options.relations = Texts(request.relations());
  options.functions = {Texts(asked.include_functions()),
                       Texts(asked.exclude_functions())};
  options.variables = {Texts(asked.include_variables()),
                       Texts(asked.exclude_variables())};
  // What is not asked for keeps the default of the engine, which is not 0.
  if (asked.has_min_programs()) options.min_programs = asked.min_programs();
  if (asked.has_max_chance()) options.max_chance = asked.max_chance();
  if (asked.has_max_invariants()) {
    options.max_invariants = asked.max_invariants();
  }
  if (asked.has_max_hypotheses()) {
    options.max_hypotheses = asked.max_hypotheses();
  }
  return options;
}

// One job as a state machine over the daemon's messages.
class Worker {
 public:
  explicit Worker(int socket) : channel_(socket, nullptr) {}

  // Until the answer is sent.
  absl::Status Work() {
    while (!finished_) {
      worker::ToWorker message;
      absl::Status status = channel_.Receive(&message);
      if (status.ok()) status = Handle(message);
      if (!status.ok()) return status;
    }
    return Learn();
  }

  absl::Status Fail(const absl::Status& why) {
    worker::FromWorker answer;
    answer.set_failed(std::string(why.message()));
    return Say(&answer);
  }

 private:
  absl::Status Handle(const worker::ToWorker& message) {
    if ((inference_ == nullptr) != message.has_begin()) {
      return absl::InvalidArgumentError("Begin is the first message");
    }
    switch (message.kind_case()) {
      case worker::ToWorker::kBegin:
        return OnBegin(message.begin());
      case worker::ToWorker::kBeginRun:
        inference_->BeginRun(
            {.run = message.begin_run().run(),
             .program = message.begin_run().experiment(),
             .torch_version = message.begin_run().torch_version()});
        return absl::OkStatus();
      case worker::ToWorker::kBatch:
        return OnBatch(message.batch());
      case worker::ToWorker::kEndProcess:
        return OnEndProcess(message.end_process());
      case worker::ToWorker::kEndRun:
        inference_->EndRun();
        return absl::OkStatus();
      case worker::ToWorker::kFinish:
        finished_ = true;
        return absl::OkStatus();
      case worker::ToWorker::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("ToWorker.kind is not set");
  }

  absl::Status OnBegin(const worker::Begin& begin) {
    v1::InferRequest request;
    if (!request.ParseFromString(begin.request())) {
      return absl::InvalidArgumentError("Begin.request is not an InferRequest");
    }
    inference_ = std::make_unique<Inference>(OptionsOf(request));
    return absl::OkStatus();
  }

  absl::Status OnBatch(const worker::StoredBatch& stored) {
    // Decompressed here and not by the daemon: the work of it counts against
    // this process alone.
    const absl::StatusOr<StoredBatch> batch = DecodeStored(stored.value());
    if (!batch.ok()) {
      return absl::DataLossError(absl::StrCat("a stored batch of process ",
                                              stored.process(), ": ",
                                              batch.status().message()));
    }
    // The daemon decides attempts, not the records, as for checks; and before
    // the first record of the process is read.
    inference_->SetAttempt(stored.process(), stored.attempt());
    inference_->Consume(stored.process(), *batch);
    return absl::OkStatus();
  }

  absl::Status OnEndProcess(const worker::EndProcess& message) {
    const absl::StatusOr<ProcessEnd> end = ToProcessEnd(message.end());
    if (!end.ok()) return end.status();
    inference_->EndProcess(message.process(), *end);
    return absl::OkStatus();
  }

  absl::Status Learn() {
    absl::Status sent;
    InferenceResult learned = inference_->Finish([&](double fraction) {
      worker::FromWorker progress;
      progress.set_learned(fraction);
      // The first error is kept: Finish cannot be stopped from here.
      if (sent.ok()) sent = Say(&progress);
    });
    if (!sent.ok()) return sent;
    InvariantSet set;
    set.invariants = std::move(learned.invariants);
    worker::FromWorker answer;
    worker::Result& result = *answer.mutable_result();
    result.set_set_json(ToJson(set).dump());
    // Looked at here, where the reason is known. The channel would refuse it as
    // a message that is too large.
    if (result.set_json().size() > kMaxLearnedSetBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          set.invariants.size(), " rules were learned, ",
          result.set_json().size() >> 20, " MiB of JSON; a set has at most ",
          kMaxLearnedSetBytes >> 20,
          " MiB: lower --max-invariants, or leave functions and variables "
          "out"));
    }
    for (const auto& [reason, hypotheses] : learned.dropped) {
      (*result.mutable_dropped())[reason] = hypotheses;
    }
    return Say(&answer);
  }

  absl::Status Say(worker::FromWorker* message) {
    // With every message: the daemon looks by itself only while it feeds or
    // waits.
    message->set_peak_bytes(PeakBytes(getpid()));
    return channel_.Send(*message);
  }

  MessageChannel channel_;
  std::unique_ptr<Inference> inference_;
  bool finished_ = false;
};

int RunWorker() {
  Worker worker(kWorkerSocket);
  absl::Status status = worker.Work();
  if (status.ok()) return kWorkerDone;
  // The daemon is gone, so there is nobody who would read an answer.
  if (absl::IsUnavailable(status)) return kWorkerAlone;
  status = worker.Fail(status);
  return status.ok() ? kWorkerFailed : kWorkerAlone;
}

}  // namespace

std::optional<int> RunIfInferenceWorker(int argc, char** argv) {
  if (argc != 4 || argv[1] != std::string(kWorkerArgument)) return std::nullopt;
  uint64_t memory_bytes = 0;
  pid_t daemon = 0;
  if (!absl::SimpleAtoi(argv[2], &memory_bytes) ||
      !absl::SimpleAtoi(argv[3], &daemon)) {
    return std::nullopt;
  }
  if (!SetUpProcess(memory_bytes, daemon)) return kWorkerAlone;
  return RunWorker();
}

}  // namespace traincheck::server
