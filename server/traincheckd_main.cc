// traincheckd: receives what agents record, keeps it, checks it and learns
// from it. Reads options, puts the parts together, waits for a signal.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "base/logging.h"
#include "base/runtime_folder.h"
#include "server/access/own_token.h"
#include "server/control/version.h"
#include "server/daemon.h"
#include "server/jobs/inference_worker.h"
#include "server/metrics/http_server.h"
#include "server/metrics/metrics_pages.h"
#include "server/options.h"
#include "server/out_of_memory.h"
#include "server/rpc_service.h"
#include "server/socket_lock.h"

namespace traincheck::server {
namespace {

constexpr int kExitFailed = 1;
// A tenth of a second: runs end, and silent relays are noticed, with that delay
// at most.
constexpr long kTickNs = 100'000'000;

// Each client takes a file, and the store must never lack one.
void RaiseFileLimit() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// Readers see the whole address or no file. Written under a new name, so that
// no link that lies in a folder of many users leads elsewhere.
bool WritePortFile(const std::string& path, const std::string& address) {
  std::string next = path + ".XXXXXX";
  const std::string line = address + "\n";
  const int fd = mkostemp(next.data(), O_CLOEXEC);
  bool written = fd >= 0 && write(fd, line.data(), line.size()) ==
                                static_cast<ssize_t>(line.size());
  written = written && rename(next.c_str(), path.c_str()) == 0;
  if (!written) {
    spdlog::error("cannot write the port file path={} error=\"{}\"", path,
                  strerror(errno));
    if (fd >= 0) unlink(next.c_str());
  }
  if (fd >= 0) close(fd);
  return written;
}

// False: they were asked for and cannot be served, which the log says.
bool ServeMetrics(const Options& options, const DaemonMetrics& metrics,
                  std::unique_ptr<HttpServer>* server) {
  if (options.metrics.empty()) return true;
  absl::StatusOr<std::unique_ptr<HttpServer>> started =
      HttpServer::Start(options.metrics, [&metrics](const std::string& path) {
        return AnswerPage(metrics, path);
      });
  if (!started.ok()) {
    spdlog::critical("--metrics: {}", std::string(started.status().message()));
    return false;
  }
  *server = *std::move(started);
  spdlog::info("serving metrics address={}", (*server)->address());
  return true;
}

// The message is all that the user sees of a start that fails.
int Fail(const absl::Status& status) {
  spdlog::critical("{}", std::string(status.message()));
  return kExitFailed;
}

// The place to listen at, ours alone.
absl::Status TakeAddress(const std::string& address, SocketLock* lock) {
  if (address == DefaultAddress()) {
    const absl::Status made = MakeRuntimeFolder().status();
    if (!made.ok()) return made;
  }
  return lock->Take(address);
}

int Run(const Options& options, const sigset_t& signals) {
  SocketLock lock;
  if (absl::Status s = TakeAddress(options.port.listen, &lock); !s.ok()) {
    return Fail(s);
  }
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Open(options.daemon);
  if (!daemon.ok()) return Fail(daemon.status());
  Daemon& d = **daemon;
  const bool socket = absl::StartsWith(options.port.listen, "unix:");
  const auto gate = std::make_shared<Gate>(socket ? nullptr : &d.tokens());
  IngestService ingest(&d.registry(), &d.plans(), gate.get(), d.store_id(),
                       options.ingest);
  ControlService control({&d.store(), &d.queries(), &d.registry(), &d.sets(),
                          &d.policy(), &d.board(), &d.violations(), &d.jobs(),
                          &d.cleaner(), &d.plans(), &d.stored_checks(),
                          gate.get()});
  FeedbackService feedback({&d.registry(), &d.violations(), &d.marks(),
                            &d.silences(), &d.review(), &d.policy(),
                            &d.caller(), gate.get()});
  ComparisonService comparison(&d.stored_comparisons(), &d.registry(),
                               gate.get());
  ZoomService zoom(&d.zoom_reports(), &d.registry(), gate.get());
  AccessService access(&d.tokens(), gate.get());
  absl::StatusOr<std::unique_ptr<RpcServer>> rpc = RpcServer::Start(
      options.port, gate,
      {&ingest, &control, &feedback, &comparison, &zoom, &access});
  if (!rpc.ok()) return Fail(rpc.status());
  OwnToken own(d.tokens().CreateAutomatic(), options.daemon.data_dir,
               (*rpc)->address());
  own.Tick(absl::Now());
  // Behind the token of the daemon's user, which their clients look for once
  // they get in.
  gate->Open();
  spdlog::info("listening address={} data_dir={} store={} version={}",
               (*rpc)->address(), options.daemon.data_dir, d.store_id(),
               kServerVersion);
  std::unique_ptr<HttpServer> metrics;
  int code = ServeMetrics(options, d.metrics(), &metrics) ? 0 : kExitFailed;
  if (!options.port_file.empty() &&
      !WritePortFile(options.port_file, (*rpc)->address())) {
    code = kExitFailed;
  }
  const timespec tick = {.tv_sec = 0, .tv_nsec = kTickNs};
  while (code == 0 && sigtimedwait(&signals, nullptr, &tick) < 0) {
    d.Tick();
    ingest.Tick(absl::Now());
    own.Tick(absl::Now());
  }
  spdlog::info("stopping");
  metrics.reset();
  // The calls first: they use the parts that the daemon then stops.
  (*rpc)->Stop(absl::Seconds(1));
  const bool all_ended = d.Stop();
  spdlog::info("stopped");
  // A job that is still at work would use what the destructors take away; all
  // that matters is in the store, which is closed.
  if (!all_ended) _exit(code);
  return code;
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) {
  // First: a worker shares the program with the daemon and none of its setup.
  if (const auto code = traincheck::server::RunIfInferenceWorker(argc, argv)) {
    return *code;
  }
  traincheck::server::Options options;
  if (const auto code =
          traincheck::server::ParseOptions(argc, argv, &options)) {
    return *code;
  }
  traincheck::InitLogging("traincheckd", options.log_level,
                          options.log_format == "json"
                              ? traincheck::LogFormat::kJson
                              : traincheck::LogFormat::kText);
  traincheck::server::EndWhenOutOfMemory();
  traincheck::server::RaiseFileLimit();
  // Debian's absl looks at each lock for one that could wait for itself, which
  // takes a twentieth of a busy daemon's time. Tests have it on.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Whatever the daemon makes holds what trainings have recorded: it is its
  // user's alone.
  umask(077);
  // A file size limit is a full disk: an error that the store answers to.
  signal(SIGXFSZ, SIG_IGN);
  // Before any thread: the main thread alone takes these.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  // gRPC may still end a connection on a thread of its own: no destructors of
  // globals run, of which OpenSSL's would take away what that thread uses.
  _exit(traincheck::server::Run(options, signals));
}
