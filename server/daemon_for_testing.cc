#include "server/daemon_for_testing.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/credentials.h"
#include "invariants/testing/synthetic_training.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {

bool WaitUntil(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

std::vector<v1::Batch> TrainingBatches() {
  TrainingOptions options;
  options.ranks = 1;
  options.wrapped = false;
  options.steps = 40;
  std::vector<v1::Batch> batches;
  for (const StoredBatch& batch : TrainRank(options, 0)) {
    std::vector<TestSlice> slices;
    size_t at = 0;
    for (const RingSlice& slice : batch.slices) {
      const size_t size = slice.to - slice.from;
      slices.push_back({slice.ring, slice.from, batch.plain.substr(at, size),
                        slice.records});
      at += size;
    }
    batches.push_back(MakeBatch(batch.number, slices));
  }
  return batches;
}

DaemonProcess::~DaemonProcess() {
  if (pid_ != 0) Kill();
}

pid_t DaemonProcess::Spawn(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "server/traincheckd");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    if (open_files_ != 0) {
      rlimit limit;
      getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = open_files_;
      if (hard_limit_) limit.rlim_max = open_files_;
      setrlimit(RLIMIT_NOFILE, &limit);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  return pid_;
}

void DaemonProcess::Start(const std::vector<std::string>& more) {
  const std::string port_file = folder_ + "/address";
  std::filesystem::remove(port_file);
  std::vector<std::string> arguments = {"--data-dir",  folder_ + "/data",
                                        "--listen",    "127.0.0.1:0",
                                        "--port-file", port_file};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Spawn(arguments);
  WaitUntil([&] { return std::filesystem::exists(port_file); });
  std::ifstream(port_file) >> address_;
  ASSERT_FALSE(address_.empty());
}

void DaemonProcess::LimitFileSize(rlim_t bytes) {
  const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(prlimit(pid_, RLIMIT_FSIZE, &limit, nullptr), 0);
}

void DaemonProcess::Signal(int number) { kill(pid_, number); }

int DaemonProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void DaemonProcess::Kill() {
  Signal(SIGKILL);
  Wait();
}

std::shared_ptr<grpc::Channel> DaemonProcess::Channel() const {
  grpc::ChannelArguments arguments;
  // A connection of its own, as another process would have.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return *MakeChannel(address_, arguments);
}

std::unique_ptr<v1::Control::Stub> DaemonProcess::Control() const {
  return v1::Control::NewStub(Channel());
}

uint64_t DaemonProcess::StatusNumber(const std::string& name) const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
  std::string word;
  uint64_t number = 0;
  while (file >> word) {
    if (word == name + ":" && file >> number) return number;
  }
  return 0;
}

TestRelay::TestRelay(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(v1::Ingest::NewStub(channel)) {
  // Of hundreds that connect at once one may be refused; a relay tries again.
  // Counts only for streams that are opened after it.
  context_.set_wait_for_ready(true);
  stream_ = stub_->Stream(&context_);
}

v1::Welcome TestRelay::Greet(const v1::Hello& hello) {
  Send(Request(hello));
  return Receive().welcome();
}

bool TestRelay::Send(const v1::IngestRequest& request) {
  return stream_->Write(request);
}

v1::IngestReply TestRelay::Receive() {
  v1::IngestReply reply;
  stream_->Read(&reply);
  return reply;
}

bool TestRelay::AwaitAcknowledged(uint64_t next_batch) {
  v1::IngestReply reply;
  while (stream_->Read(&reply)) {
    if (reply.acknowledged().next_batch() >= next_batch) return true;
  }
  return false;
}

grpc::Status TestRelay::End() {
  v1::IngestReply reply;
  while (stream_->Read(&reply)) {
  }
  return stream_->Finish();
}

grpc::Status TestRelay::Leave(v1::EndKind end,
                              const std::vector<v1::RingReport>& rings) {
  Send(GoodbyeRequest(end, rings));
  stream_->WritesDone();
  return End();
}

}  // namespace traincheck::server
