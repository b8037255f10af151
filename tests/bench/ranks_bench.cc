// What a job of many ranks costs the daemon: simulated ranks stream their steps
// through the real traincheckd, which checks them as they come.
//
//   tests/bench/run.sh ranks_bench [--paced] [STEPS [RANKS...]]
//   tests/bench/run.sh ranks_bench 20 64 256 1000                the default
//
// The rules are the built-in ones and those learned from two ranks of the same
// training. Each rank has a stream; a round is one step of every rank, and the
// next one begins when all of it is stored. --paced makes one step a second,
// whose records come a few at a time and are sent as relays do. Shown are the
// batches of a step and rank, the daemon's CPU time, how long after the last
// record was stored all of it was checked, its memory and threads, and what 125
// watchers cost it while nothing happens.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/traincheck/v1/control.grpc.pb.h"
#include "tests/bench/daemon_process.h"
#include "tests/bench/paced_job.h"
#include "tests/bench/simulated_job.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kChannels = 20;
constexpr int kWatchers = 125;
constexpr auto kIdle = std::chrono::seconds(5);
constexpr char kLearned[] = "learned";

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

double IdleShare(const DaemonProcess& daemon) {
  const double before = daemon.CpuSeconds();
  std::this_thread::sleep_for(kIdle);
  return (daemon.CpuSeconds() - before) / Seconds(kIdle);
}

// How much more of a core the daemon takes while a live run is watched.
double ShareOfWatchers(const Channels& channels, const DaemonProcess& daemon,
                       const std::string& run) {
  const double without = IdleShare(daemon);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> threads;
  for (int i = 0; i < kWatchers; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    threads.emplace_back([&channels, &run, context = contexts.back().get(), i] {
      const auto stub = v1::Control::NewStub(
          channels[static_cast<size_t>(i) % channels.size()]);
      v1::WatchViolationsRequest request;
      request.set_run(run);
      const auto stream = stub->WatchViolations(context, request);
      v1::Violation violation;
      while (stream->Read(&violation)) {
      }
      stream->Finish();
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const double with = IdleShare(daemon);
  for (const auto& context : contexts) context->TryCancel();
  for (std::thread& thread : threads) thread.join();
  return with - without;
}

// Until the check has read all that is stored of a run that goes on.
double SecondsBehind(const Channels& channels, const std::string& name) {
  const auto stub = v1::Control::NewStub(channels[0]);
  const auto begin = Clock::now();
  v1::Run run;
  do {
    grpc::ClientContext context;
    v1::GetRunRequest request;
    request.set_run(name);
    stub->GetRun(&context, request, &run);
  } while (!run.check().caught_up());
  return Seconds(Clock::now() - begin);
}

// The daemon and a rule set that it has learned.
class Subject {
 public:
  explicit Subject(const std::string& program) {
    char folder[] = "/tmp/ranks-bench-XXXXXX";
    if (mkdtemp(folder) == nullptr) std::exit(1);
    folder_ = folder;
    daemon_ = std::make_unique<DaemonProcess>(program, folder_);
    channels_ = Connect(daemon_->address(), kChannels);
    Learn(channels_, kLearned);
  }
  ~Subject() {
    daemon_.reset();
    std::filesystem::remove_all(folder_);
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  const Channels& channels() const { return channels_; }
  // Prints the row of one job. REQUIRES: nothing was measured yet.
  template <typename AnyJob>
  void Measure(const TrainingOptions& options, AnyJob* job) const {
    const double before = daemon_->CpuSeconds();
    const auto begin = Clock::now();
    job->Stream();
    const double stored = Seconds(Clock::now() - begin);
    const double behind = SecondsBehind(channels_, "job");
    const double stored_cpu = daemon_->CpuSeconds() - before;
    const double watchers = ShareOfWatchers(channels_, *daemon_, "job");
    const double idle = daemon_->CpuSeconds();
    job->End();
    const v1::Run run = AwaitChecked(channels_, "job");
    const double cpu = stored_cpu + daemon_->CpuSeconds() - idle;
    std::printf(
        "| %d | %d | %lu k | %.1f | %.2f | %.2f | %.3f | %.1f | %ld | %ld | "
        "%.1f | %u of %u |\n",
        options.ranks, options.steps,
        static_cast<unsigned long>(job->records() / 1000),
        static_cast<double>(job->batches()) / options.ranks / options.steps,
        stored, behind, cpu / options.steps,
        1e6 * cpu / static_cast<double>(job->records()),
        daemon_->Status("VmHWM") / 1024, daemon_->Status("Threads"),
        100 * watchers, run.check().decided(), run.check().total());
    std::fflush(stdout);
  }

 private:
  std::string folder_;
  std::unique_ptr<DaemonProcess> daemon_;
  Channels channels_;
};

void Measure(const std::string& program, int steps, int ranks, bool paced) {
  const Subject subject(program);
  TrainingOptions options;
  options.ranks = ranks;
  options.steps = steps;
  v1::Hello hello = HelloOf("job", v1::RUN_ROLE_TARGET);
  hello.set_check_set(std::string("builtin,") + kLearned);
  if (paced) {
    PacedJob job(subject.channels(), options, hello);
    subject.Measure(options, &job);
  } else {
    Job job(subject.channels(), options, hello);
    subject.Measure(options, &job);
  }
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) {
  const std::string program =
      std::string(argv[0]) + ".runfiles/traincheckd/server/traincheckd";
  const bool paced = argc > 1 && std::string(argv[1]) == "--paced";
  const int first = paced ? 2 : 1;
  const int steps = argc > first ? std::atoi(argv[first]) : 20;
  std::vector<int> ranks;
  for (int i = first + 1; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  if (ranks.empty()) ranks = {64, 256, 1000};
  std::printf(
      "| ranks | steps | records | batches a step and rank | stored, s "
      "| behind, s | CPU a step, s | CPU a record, us | memory, MiB | threads "
      "| 125 watchers, %% of a core | decided |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int count : ranks) {
    traincheck::server::Measure(program, steps, count, paced);
  }
  return 0;
}
