// The real daemon with many clients, slow clients and clients that are none.
#include "server/control/limits.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>
#include <utility>

#include "base/sanitized.h"
#include "invariants/sets/invariant_for_testing.h"
#include "invariants/sets/set_json.h"
#include "server/daemon_for_testing.h"
#include "server/ingest/limits.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kIdle = 200;
constexpr int kStreaming = 64;
constexpr int kWatchers = 20;
// Some 15 kB each: more than the buffers of a watcher's connection take.
constexpr int kViolated = 300;
constexpr int kLists = 5;
constexpr uint64_t kBatches = 30;
constexpr int kCallsInBatch = 2000;
constexpr int kRecordsInBatch = 2 * kCallsInBatch;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// Batches [0, count) that follow each other in ring 1.
std::vector<v1::IngestRequest> MakeRequests(uint64_t count,
                                            const std::string& records,
                                            int records_in_batch) {
  v1::Batch batch =
      MakeBatch(0, {{.ring = 1,
                     .from = 0,
                     .bytes = records,
                     .records = static_cast<uint32_t>(records_in_batch)}});
  std::vector<v1::IngestRequest> requests;
  for (uint64_t i = 0; i < count; ++i) {
    batch.set_number(i);
    batch.mutable_slices(0)->set_from(i * records.size());
    batch.mutable_slices(0)->set_to((i + 1) * records.size());
    requests.push_back(Request(batch));
  }
  return requests;
}

std::string CallsText(int calls) {
  std::string records;
  for (int call = 1; call <= calls; ++call) records += CallRecords(call);
  return records;
}

// States with digests that no compressor shortens.
std::string StatesText(int states) {
  std::mt19937_64 digests;
  std::string records;
  for (int i = 0; i < states; ++i) records += StateRecordOf(1, digests());
  return records;
}

// A connection that is no gRPC client; -1: refused.
int Connect(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(std::stoi(address.substr(address.rfind(':') + 1)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

class LimitsTest : public testing::Test {
 protected:
  LimitsTest()
      : folder_(testing::TempDir() + "/limits-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        daemon_(folder_) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  v1::Run GetRun(const std::string& id) {
    v1::GetRunRequest request;
    request.set_run(id);
    v1::Run run;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->GetRun(&context, request, &run);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return run;
  }
  size_t CountRuns() {
    grpc::ClientContext context;
    const auto control = daemon_.Control();
    const auto reader = control->ListRuns(&context, v1::ListRunsRequest());
    size_t runs = 0;
    v1::Run run;
    while (reader->Read(&run)) ++runs;
    EXPECT_TRUE(reader->Finish().ok());
    return runs;
  }
  // One process of `run` from Hello to the last acknowledgement; it stays.
  std::unique_ptr<TestRelay> Stream(const std::string& run, uint32_t pid,
                                    const std::vector<v1::IngestRequest>& all) {
    auto relay = std::make_unique<TestRelay>(daemon_.Channel());
    relay->Greet(MakeHello(run, pid));
    for (const v1::IngestRequest& request : all) relay->Send(request);
    if (!relay->AwaitAcknowledged(all.size())) {
      ADD_FAILURE() << "stream ended: " << relay->End().error_message();
    }
    return relay;
  }
  // A run that violates kViolated rules, each by far more than a line.
  void MakeViolations() {
    InvariantSet set;
    for (int i = 0; i < kViolated; ++i) {
      const auto call = [](const std::string& function) {
        return nlohmann::json{{"kind", "call"},
                              {"function", {{"name", function}}}};
      };
      nlohmann::json event =
          call("never.called" + std::to_string(i) + std::string(5000, 'x'));
      event["binding"] = "any";
      set.invariants.push_back(NewInvariant(
          "EventContain", {{"window", call("torch.optim.adam.Adam.step")},
                           {"event", std::move(event)}}));
    }
    v1::ImportSetRequest request;
    request.set_name("rules");
    request.set_json(ToJson(set).dump());
    v1::SetSummary summary;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->ImportSet(&context, request, &summary);
    ASSERT_TRUE(status.ok()) << status.error_message();
    v1::Hello hello = MakeHello("faulty", 1);
    hello.set_check_set("rules");
    TestRelay relay(daemon_.Channel());
    relay.Greet(hello);
    for (const v1::Batch& batch : TrainingBatches()) {
      ASSERT_TRUE(relay.Send(Request(batch)));
    }
    EXPECT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {}).ok());
    EXPECT_TRUE(WaitUntil(
        [&] { return GetRun("faulty").check().violated() == kViolated; }));
  }
  void ExpectServed(const std::string& run) {
    const auto requests = MakeRequests(1, CallsText(1), 2);
    Stream(run, 1, requests);
    EXPECT_EQ(GetRun(run).records(), 2u);
  }

  const std::string folder_;
  DaemonProcess daemon_;
};

// A watcher that does not read what is there for it and stays until the end.
class Watcher {
 public:
  explicit Watcher(std::unique_ptr<v1::Control::Stub> stub)
      : stub_(std::move(stub)), reader_(stub_->WatchViolations(&context_, {})) {
    reader_->WaitForInitialMetadata();
  }
  ~Watcher() { context_.TryCancel(); }
  // How many of `count` violations came.
  int Read(int count) {
    v1::Violation violation;
    int read = 0;
    while (read < count && reader_->Read(&violation)) ++read;
    return read;
  }
  grpc::Status Finish() {
    v1::Violation violation;
    while (reader_->Read(&violation)) {
    }
    return reader_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Control::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::Violation>> reader_;
};

TEST_F(LimitsTest, TwoHundredIdleAndSixtyFourStreamingClients) {
  daemon_.Start({"--log-level", "error"});  // not a line a violation
  MakeViolations();
  std::vector<std::unique_ptr<TestRelay>> idle;
  for (int i = 0; i < kIdle; ++i) {
    idle.push_back(std::make_unique<TestRelay>(daemon_.Channel()));
    idle.back()->Greet(MakeHello("idle-" + std::to_string(i % 20), i + 1));
  }
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int i = 0; i < kWatchers; ++i) {
    watchers.push_back(std::make_unique<Watcher>(daemon_.Control()));
  }
  const auto requests =
      MakeRequests(kBatches, CallsText(kCallsInBatch), kRecordsInBatch);
  std::vector<std::unique_ptr<TestRelay>> streaming(kStreaming);
  std::vector<std::thread> threads;
  const auto start = Clock::now();
  for (int i = 0; i < kStreaming; ++i) {
    threads.emplace_back(
        [&, i] { streaming[i] = Stream("busy", i + 1, requests); });
  }
  for (int i = 0; i < kLists; ++i) {
    threads.emplace_back([&] { EXPECT_GE(CountRuns(), 20u); });
  }
  for (std::thread& thread : threads) thread.join();
  const v1::Run run = GetRun("busy");
  const uint64_t threads_now = daemon_.StatusNumber("Threads");
  const uint64_t peak_mib = daemon_.StatusNumber("VmHWM") >> 10;
  std::printf("%lu records of %d streams in %.2f s; %lu threads, %lu MiB\n",
              static_cast<unsigned long>(run.records()), kStreaming,
              Seconds(Clock::now() - start),
              static_cast<unsigned long>(threads_now),
              static_cast<unsigned long>(peak_mib));
  EXPECT_EQ(run.records(), kStreaming * kBatches * kRecordsInBatch);
  EXPECT_EQ(run.processes_size(), kStreaming);
  EXPECT_EQ(run.quarantined_batches(), 0u);
  EXPECT_LT(threads_now, 150u);
  if (!kSanitized) {
    EXPECT_LT(peak_mib, 1024u);
  }
  // Whoever reads late has missed nothing.
  EXPECT_EQ(watchers[0]->Read(kViolated), kViolated);

  const auto end = Clock::now();
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
  std::printf("stopped in %.2f s\n", Seconds(Clock::now() - end));
  EXPECT_LT(Clock::now() - end, std::chrono::seconds(5));
  for (const auto& relay : idle) {
    EXPECT_EQ(relay->End().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(LimitsTest, WatchersOverTheLimitAreRefusedAndOthersServed) {
  daemon_.Start();
  std::vector<std::unique_ptr<Watcher>> watchers;
  // All of one owner.
  for (int i = 0; i < kMaxWaitingCalls - kWaitingCallsForOthers; ++i) {
    watchers.push_back(std::make_unique<Watcher>(daemon_.Control()));
  }
  const grpc::Status status = Watcher(daemon_.Control()).Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("192 of them your own"));
  ExpectServed("run");
  watchers.pop_back();
  EXPECT_TRUE(WaitUntil([&] {
    grpc::ClientContext context;
    const auto control = daemon_.Control();
    const auto reader = control->WatchViolations(&context, {});
    reader->WaitForInitialMetadata();
    context.TryCancel();
    return reader->Finish().error_code() == grpc::StatusCode::CANCELLED;
  }));
  const auto end = Clock::now();
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
  EXPECT_LT(Clock::now() - end, std::chrono::seconds(5));
}

TEST_F(LimitsTest, AThousandRunsAreListed) {
  daemon_.Start();
  constexpr int kRuns = 1000;
  constexpr int kThreads = 20;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const auto channel = daemon_.Channel();
      for (int i = thread; i < kRuns; i += kThreads) {
        TestRelay relay(channel);
        relay.Greet(MakeHello("run-" + std::to_string(i), i + 1));
        relay.Leave(v1::END_KIND_CLEAN, {});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(CountRuns(), static_cast<size_t>(kRuns));
  daemon_.Kill();
  daemon_.Start();
  EXPECT_EQ(CountRuns(), static_cast<size_t>(kRuns));
}

// The disk takes nothing, the relay sends on: the daemon reads as much as its
// credit and no more.
TEST_F(LimitsTest, ARelayThatSendsOnWhileTheDiskStandsIsHeldBack) {
  daemon_.Start();
  const auto requests = MakeRequests(400, StatesText(20'000), 20'000);
  const size_t bytes = requests[0].ByteSizeLong();
  ASSERT_GT(requests.size() * bytes, 8 * kCreditBytes);
  TestRelay relay(daemon_.Channel());
  relay.Greet(MakeHello("run", 1));
  relay.Send(requests[0]);
  ASSERT_TRUE(relay.AwaitAcknowledged(1));
  const uint64_t before_mib = daemon_.StatusNumber("VmRSS") >> 10;
  daemon_.LimitFileSize(4096);
  std::atomic<size_t> sent = 1;
  std::thread sender([&] {
    for (size_t i = 1; i < requests.size(); ++i) {
      relay.Send(requests[i]);
      ++sent;
    }
  });
  // It has stopped once nothing was sent for a while.
  size_t last = 0;
  EXPECT_TRUE(WaitUntil([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return std::exchange(last, sent) == sent;
  }));
  const uint64_t held_mib = daemon_.StatusNumber("VmRSS") >> 10;
  std::printf("%zu of %zu batches of %zu bytes sent; %lu MiB, %lu before\n",
              sent.load(), requests.size(), bytes,
              static_cast<unsigned long>(held_mib),
              static_cast<unsigned long>(before_mib));
  EXPECT_LT(sent * bytes, 4 * kCreditBytes);
  if (!kSanitized) {
    EXPECT_LT(held_mib, before_mib + 100);
  }
  daemon_.LimitFileSize(RLIM_INFINITY);
  EXPECT_TRUE(relay.AwaitAcknowledged(requests.size()));
  sender.join();
  EXPECT_EQ(GetRun("run").records(), requests.size() * 20'000);
}

// A relay that is slow to read acknowledgements loses none: each says all.
TEST_F(LimitsTest, AcknowledgementsThatNobodyReadsAreFew) {
  daemon_.Start();
  TestRelay relay(daemon_.Channel());
  relay.Greet(MakeHello("run", 1));
  constexpr uint64_t kCount = 5000;
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(relay.Send(Request(StepBatch(i))));
  }
  EXPECT_TRUE(WaitUntil([&] { return GetRun("run").records() == kCount; }));
  EXPECT_TRUE(relay.AwaitAcknowledged(kCount));
}

TEST_F(LimitsTest, ConnectionsThatSayNothingOrGarbageHurtNobody) {
  daemon_.Start();
  constexpr int kConnections = 1000;
  std::vector<int> connections;
  for (int i = 0; i < kConnections; ++i) {
    const int fd = Connect(daemon_.address());
    if (fd < 0) continue;
    connections.push_back(fd);
    if (i % 2 == 0) {
      const std::string garbage(1 + i, static_cast<char>(i));
      // A refusal is as good as silence.
      (void)!send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL);
    }
    if (i % 100 == 0) ExpectServed("run-" + std::to_string(i));
  }
  EXPECT_GT(connections.size(), 900u);
  ExpectServed("after");
  for (const int fd : connections) close(fd);
  ExpectServed("at-last");
}

// A shell's usual limit on files is not the daemon's: it takes what the system
// lets it have.
TEST_F(LimitsTest, AFloodBeyondTheSoftFileLimitPasses) {
  daemon_.LimitOpenFiles(256);
  daemon_.Start();
  ExpectServed("before");
  std::vector<int> connections;
  for (int i = 0; i < 1000; ++i) {
    const int fd = Connect(daemon_.address());
    if (fd >= 0) connections.push_back(fd);
  }
  ExpectServed("within");
  for (const int fd : connections) close(fd);
  ExpectServed("after");
  daemon_.Kill();
  daemon_.Start();
  for (const char* run : {"before", "within", "after"}) {
    EXPECT_EQ(GetRun(run).records(), 2u) << run;
  }
}

// Who takes all connections that there are makes nobody deaf: the port lives on
// and the store has files left.
TEST_F(LimitsTest, AFloodAtTheHardFileLimitIsSurvived) {
  daemon_.LimitOpenFiles(200, /*hard=*/true);
  daemon_.Start();
  TestRelay relay(daemon_.Channel());
  relay.Greet(MakeHello("before", 1));
  std::vector<int> connections;
  for (int i = 0; i < 400; ++i) {
    const int fd = Connect(daemon_.address());
    if (fd >= 0) connections.push_back(fd);
  }
  // Who was there goes on, and what is stored takes files.
  relay.Send(Request(StepBatch(0)));
  EXPECT_TRUE(relay.AwaitAcknowledged(1));
  for (const int fd : connections) close(fd);
  ExpectServed("after");
}

// gRPC takes them whole before anybody can look at their size.
TEST_F(LimitsTest, HellosOverTheLimitTakeNoMemoryForLong) {
  if (kThreadSanitized) GTEST_SKIP() << "too many bytes";
  daemon_.Start();
  ExpectServed("before");
  const uint64_t before_mib = daemon_.StatusNumber("VmRSS") >> 10;
  v1::Hello hello = MakeHello("run", 1);
  hello.set_script(std::string(15 << 20, 'x'));
  std::vector<std::thread> threads;
  for (int i = 0; i < 20; ++i) {
    threads.emplace_back([&] {
      TestRelay relay(daemon_.Channel());
      relay.Send(Request(hello));
      EXPECT_EQ(relay.End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (kSanitized) return;
  EXPECT_GT(daemon_.StatusNumber("VmHWM") >> 10, before_mib + 60);
  EXPECT_TRUE(WaitUntil(
      [&] { return daemon_.StatusNumber("VmRSS") >> 10 < before_mib + 40; }));
}

TEST_F(LimitsTest, AControlMessageOverTheLimitNamesSizeAndLimit) {
  daemon_.Start();
  v1::ImportSetRequest request;
  request.set_name("set");
  request.set_json(std::string(kMaxReceiveBytes, ' '));
  v1::SetSummary summary;
  grpc::ClientContext context;
  const grpc::Status status =
      daemon_.Control()->ImportSet(&context, request, &summary);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("vs. 16777216"));
  ExpectServed("run");
}

}  // namespace
}  // namespace traincheck::server
