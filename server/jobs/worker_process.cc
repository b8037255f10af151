#include "server/jobs/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/spawn_plan.h"
#include "server/jobs/inference_worker.h"
#include "server/jobs/process_memory.h"

namespace traincheck::server {
namespace {

constexpr char kShownName[] = "traincheckd-job";

// Sizes are written as in options: in MiB, and in GiB from 1024 of them on.
std::string Size(uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? absl::StrFormat("%.0f MiB", mib)
                    : absl::StrFormat("%.1f GiB", mib / 1024);
}

// The machine lacks processes, files or memory just now: the job fails, and can
// be started again.
absl::Status SystemError(const char* what, int error) {
  return absl::UnavailableError(absl::StrCat(
      "cannot start a process for the job: ", what, ": ", strerror(error)));
}

static_assert(kWorkerSocket == SpawnPlan::kGivenFile);

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    Options options) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return SystemError("socketpair", errno);
  }
  // dup2 onto itself would keep the close-on-exec flag.
  int theirs = fcntl(sockets[1], F_DUPFD_CLOEXEC, kWorkerSocket + 1);
  const int dup_error = errno;
  close(sockets[1]);
  if (theirs < 0) {
    close(sockets[0]);
    return SystemError("fcntl", dup_error);
  }
  pid_t pid = 0;
  // posix_spawn and not fork: the daemon has many threads, whose locks a forked
  // copy would keep for ever. SpawnPlan puts the worker into a process group of
  // its own.
  const int error = SpawnPlan(theirs).Spawn(
      options.program,
      {kShownName, kWorkerArgument, absl::StrCat(options.memory_bytes),
       absl::StrCat(getpid())},
      /*variables=*/{}, &pid);
  // With a copy of the worker's end here, the channel would stay open when the
  // worker dies.
  close(theirs);
  if (error != 0) {
    close(sockets[0]);
    return SystemError("posix_spawn", error);
  }
  std::unique_ptr<WorkerProcess> process(
      new WorkerProcess(std::move(options), pid));
  process->channel_ = std::make_unique<MessageChannel>(
      sockets[0], [raw = process.get()] { raw->MeasurePeak(); });
  return process;
}

WorkerProcess::~WorkerProcess() {
  Kill();
  AwaitEnd();
}

void WorkerProcess::Kill() {
  absl::MutexLock lock(&mutex_);
  if (pid_ != 0) kill(-pid_, SIGKILL);  // its group
}

void WorkerProcess::MeasurePeak() {
  pid_t pid = 0;
  {
    absl::MutexLock lock(&mutex_);
    pid = pid_;
  }
  // Without the lock: a read of /proc must not hold up Kill. A process that has
  // just ended says 0, which changes nothing.
  if (pid != 0) NotePeak(PeakBytes(pid));
}

// The job's thread calls this, whether the worker reports its peak or the
// daemon looks itself.
void WorkerProcess::NotePeak(uint64_t bytes) {
  if (bytes <= peak_bytes_) return;
  peak_bytes_ = bytes;
  if (options_.on_peak) options_.on_peak(bytes);
}

std::string WorkerProcess::AwaitEnd() {
  pid_t pid = 0;
  {
    absl::MutexLock lock(&mutex_);
    pid = pid_;
  }
  if (pid == 0) return "";
  // Not reaped while it is waited for, so that Kill meets no stranger.
  siginfo_t info;
  while (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  absl::MutexLock lock(&mutex_);
  int status = 0;
  waitpid(pid, &status, 0);
  // Reaped and forgotten under one lock: from here on the pid may be another
  // process's.
  pid_ = 0;
  return Describe(status);
}

// The person who started the job reads this: how it ended, by which limit, and
// what to change.
std::string WorkerProcess::Describe(int status) const {
  const std::string limit = Size(options_.memory_bytes);
  if (WIFSIGNALED(status)) {
    return absl::StrCat(
        "its process was killed by signal ", WTERMSIG(status), " (",
        strsignal(WTERMSIG(status)), "); its memory limit is ", limit,
        peak_bytes_ == 0 ? "" : ", it had reached " + Size(peak_bytes_),
        ": if the machine ran out of memory, learn from fewer runs or lower "
        "--job-memory");
  }
  if (WEXITSTATUS(status) == kWorkerOutOfMemory) {
    return absl::StrCat("its process needs more memory than its limit of ",
                        limit,
                        ": raise traincheckd's --job-memory or learn from "
                        "fewer runs");
  }
  return absl::StrCat("its process ended with exit code ", WEXITSTATUS(status));
}

}  // namespace traincheck::server
