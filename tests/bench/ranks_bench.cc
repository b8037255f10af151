// What a job of many ranks costs the daemon: simulated ranks stream their steps
// through the real traincheckd, which checks them as they come.
//
//   tests/bench/run.sh ranks_bench [STEPS [RANKS...]]    20 64 256 1000
//
// The rules are the built-in ones and those learned from two ranks of the same
// training. Each rank has a stream; a round is one step of every rank, and the
// next one begins when all of it is stored. Shown are the daemon's CPU time and
// the time until everything is checked, its memory and threads, and what 125
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

#include "base/credentials.h"
#include "invariants/testing/synthetic_training.h"
#include "proto/traincheck/v1/control.grpc.pb.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"
#include "server/ingest/test_batches.h"
#include "tests/bench/daemon_process.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;
using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

constexpr int kChannels = 20;
constexpr int kWatchers = 125;
constexpr auto kIdle = std::chrono::seconds(5);
constexpr auto kMostWaiting = std::chrono::minutes(3);
constexpr char kLearned[] = "learned";

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::vector<v1::IngestRequest> RequestsOf(const TrainingOptions& options,
                                          int32_t rank, uint64_t* records) {
  std::vector<v1::IngestRequest> requests;
  for (const StoredBatch& stored : TrainRank(options, rank)) {
    v1::Batch batch;
    batch.set_number(stored.number);
    for (const RingSlice& slice : stored.slices) {
      v1::Slice& sent = *batch.add_slices();
      sent.set_ring(slice.ring);
      sent.set_from(slice.from);
      sent.set_to(slice.to);
      sent.set_records(slice.records);
      *records += slice.records;
    }
    batch.set_plain_bytes(static_cast<uint32_t>(stored.plain.size()));
    batch.set_payload(Compress(stored.plain));
    requests.push_back(Request(batch));
  }
  return requests;
}

// The stream of one rank.
class Rank {
 public:
  Rank(const std::shared_ptr<grpc::Channel>& channel, const v1::Hello& hello)
      : stub_(v1::Ingest::NewStub(channel)), stream_(stub_->Stream(&context_)) {
    stream_->Write(Request(hello));
  }

  void Send(const v1::IngestRequest& request) { stream_->Write(request); }

  // Waits until all batches below `number` are stored.
  void Await(uint64_t number) {
    v1::IngestReply reply;
    while (reply.acknowledged().next_batch() < number) {
      if (!stream_->Read(&reply)) {
        const grpc::Status status = stream_->Finish();
        std::fprintf(stderr, "a stream ended: %s\n",
                     status.error_message().c_str());
        std::exit(1);
      }
    }
  }

  void End() {
    stream_->Write(GoodbyeRequest(v1::END_KIND_CLEAN, {}));
    stream_->WritesDone();
    v1::IngestReply reply;
    while (stream_->Read(&reply)) {
    }
    stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::IngestRequest, v1::IngestReply>>
      stream_;
};

// All ranks of a run.
class Job {
 public:
  Job(const Channels& channels, const TrainingOptions& options,
      const v1::Hello& hello) {
    for (int32_t rank = 0; rank < options.ranks; ++rank) {
      requests_.push_back(RequestsOf(options, rank, &records_));
    }
    for (int32_t rank = 0; rank < options.ranks; ++rank) {
      v1::Hello mine = hello;
      mine.mutable_process()->set_pid(1000 + static_cast<uint32_t>(rank));
      ranks_.push_back(std::make_unique<Rank>(
          channels[static_cast<size_t>(rank) % channels.size()], mine));
    }
  }

  uint64_t records() const { return records_; }

  void Stream() {
    for (size_t round = 0; round < requests_[0].size(); ++round) {
      for (size_t i = 0; i < ranks_.size(); ++i) {
        ranks_[i]->Send(requests_[i][round]);
      }
      for (const auto& rank : ranks_) rank->Await(round + 1);
    }
  }

  void End() {
    for (const auto& rank : ranks_) rank->End();
  }

 private:
  std::vector<std::vector<v1::IngestRequest>> requests_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t records_ = 0;
};

v1::Hello HelloOf(const std::string& run, v1::RunRole role) {
  v1::Hello hello = MakeHello(run, 0);
  hello.set_experiment("ranks");
  hello.set_role(role);
  return hello;
}

void Learn(const Channels& channels) {
  TrainingOptions options;
  options.steps = 50;
  Job job(channels, options, HelloOf("reference", v1::RUN_ROLE_REFERENCE));
  job.Stream();
  job.End();
  const auto stub = v1::Control::NewStub(channels[0]);
  grpc::ClientContext context;
  v1::InferRequest request;
  request.add_runs("reference");
  request.set_set(kLearned);
  const auto stream = stub->Infer(&context, request);
  v1::InferProgress progress;
  while (stream->Read(&progress)) {
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) {
    std::fprintf(stderr, "infer: %s\n", status.error_message().c_str());
    std::exit(1);
  }
}

v1::Run AwaitChecked(const Channels& channels, const std::string& name) {
  const auto stub = v1::Control::NewStub(channels[0]);
  v1::Run run;
  const auto end = Clock::now() + kMostWaiting;
  while (!run.check().finished() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    grpc::ClientContext context;
    v1::GetRunRequest request;
    request.set_run(name);
    stub->GetRun(&context, request, &run);
  }
  if (!run.check().finished()) {
    std::fprintf(stderr, "%s is not checked yet\n", name.c_str());
    std::exit(1);
  }
  return run;
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

void Measure(const std::string& program, int steps, int ranks) {
  char folder[] = "/tmp/ranks-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) std::exit(1);
  {
    const DaemonProcess daemon(program, folder);
    Channels channels;
    for (int i = 0; i < kChannels; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt("number", i);  // a connection of its own
      channels.push_back(*MakeChannel(daemon.address(), arguments));
    }
    Learn(channels);
    TrainingOptions options;
    options.ranks = ranks;
    options.steps = steps;
    v1::Hello hello = HelloOf("job", v1::RUN_ROLE_TARGET);
    hello.set_check_set(std::string("builtin,") + kLearned);
    Job job(channels, options, hello);
    const double before = daemon.CpuSeconds();
    const auto begin = Clock::now();
    job.Stream();
    const double stored = Seconds(Clock::now() - begin);
    const double stored_cpu = daemon.CpuSeconds() - before;
    const double watchers = ShareOfWatchers(channels, daemon, "job");
    const double idle = daemon.CpuSeconds();
    job.End();
    const v1::Run run = AwaitChecked(channels, "job");
    const double cpu = stored_cpu + daemon.CpuSeconds() - idle;
    std::printf(
        "| %d | %d | %lu k | %.2f | %.3f | %.1f | %ld | %ld | %.1f | %u of %u "
        "|\n",
        ranks, steps, static_cast<unsigned long>(job.records() / 1000), stored,
        cpu / steps, 1e6 * cpu / static_cast<double>(job.records()),
        daemon.Status("VmHWM") / 1024, daemon.Status("Threads"), 100 * watchers,
        run.check().decided(), run.check().total());
    std::fflush(stdout);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) {
  const std::string program =
      std::string(argv[0]) + ".runfiles/traincheckd/server/traincheckd";
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  std::vector<int> ranks;
  for (int i = 2; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  if (ranks.empty()) ranks = {64, 256, 1000};
  std::printf(
      "| ranks | steps | records | stored, s | CPU a step, s | CPU a record, "
      "us | "
      "memory, MiB | threads | 125 watchers, %% of a core | decided |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int count : ranks) {
    traincheck::server::Measure(program, steps, count);
  }
  return 0;
}
