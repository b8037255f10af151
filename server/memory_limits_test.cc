// The real daemon and clients that would fill its memory, under limits that are
// small enough to be reached.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>
#include <utility>

#include "base/credentials.h"
#include "base/sanitized.h"
#include "proto/traincheck/v1/access.grpc.pb.h"
#include "server/daemon_for_testing.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kUnsyncedMiB = 16;
constexpr uint64_t kWireMiB = 64;
// What the daemon needs besides: threads, heap that is free, the store's.
constexpr uint64_t kElseMiB = 100;
constexpr int kRelays = 200;
constexpr int kStates = 110'000;
constexpr uint64_t kBatches = 2;

std::string Bytes(uint64_t mib) { return std::to_string(mib * kMiB); }

// States with digests that no compressor shortens, close to the limit of a
// batch.
std::vector<v1::IngestRequest> LargeBatches() {
  std::mt19937_64 digests;
  std::string records;
  for (int i = 0; i < kStates; ++i) records += StateRecordOf(1, digests());
  std::vector<v1::IngestRequest> requests;
  for (uint64_t i = 0; i < kBatches; ++i) {
    requests.push_back(Request(MakeBatch(i, {{.ring = 1,
                                              .from = i * records.size(),
                                              .bytes = records,
                                              .records = kStates}})));
  }
  return requests;
}

class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest()
      : folder_(testing::TempDir() + "/memory-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        daemon_(folder_) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  uint64_t PeakMiB() const { return daemon_.StatusNumber("VmHWM") >> 10; }
  v1::Run GetRun(const std::string& id) const {
    v1::GetRunRequest request;
    request.set_run(id);
    v1::Run run;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->GetRun(&context, request, &run);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return run;
  }
  // Sends one message of these bytes where a relay says Hello.
  grpc::Status SendRaw(const grpc::Slice& bytes) const {
    grpc::GenericStub stub(daemon_.Channel());
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
    };
    auto call =
        stub.PrepareCall(&context, "/traincheck.v1.Ingest/Stream", &queue);
    call->StartCall(nullptr);
    await();
    call->Write(grpc::ByteBuffer(&bytes, 1), nullptr);
    await();
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    return status;
  }
  // A channel of the owner's, with a token of its own.
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& owner) const {
    v1::CreateTokenRequest request;
    request.set_role(v1::ROLE_RELAY);
    request.set_owner(owner);
    v1::CreateTokenReply reply;
    grpc::ClientContext context;
    const grpc::Status status = v1::Access::NewStub(daemon_.Channel())
                                    ->CreateToken(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    const std::string file = folder_ + "/" + owner + ".token";
    std::ofstream(file) << reply.text();
    chmod(file.c_str(), 0600);
    return *MakeChannel(daemon_.address(), grpc::ChannelArguments(),
                        {.tls_ca = "", .token = file});
  }

  const std::string folder_;
  DaemonProcess daemon_;
};

// Delivers all batches of one process as a relay does: from where the daemon
// stands, again whenever the stream breaks.
class SteadyRelay {
 public:
  SteadyRelay(const DaemonProcess* daemon, uint32_t pid)
      : daemon_(*daemon), hello_(MakeHello("run", pid)) {
    Connect();
  }

  // `sent` counts messages.
  void Deliver(const std::vector<v1::IngestRequest>& all,
               std::atomic<uint64_t>* sent) {
    while (true) {
      for (uint64_t i = next_; i < all.size() && stream_->Send(all[i]); ++i) {
        ++*sent;
      }
      if (stream_->AwaitAcknowledged(all.size())) return;
      Connect();
      if (next_ == all.size()) return;
    }
  }

 private:
  void Connect() {
    stream_ = std::make_unique<TestRelay>(daemon_.Channel());
    next_ = stream_->Greet(hello_).next_batch();
    hello_.set_resumes(true);
  }

  const DaemonProcess& daemon_;
  v1::Hello hello_;
  std::unique_ptr<TestRelay> stream_;
  uint64_t next_ = 0;
};

// Each has as much to send as one may at most; none of it can be stored.
TEST_F(MemoryLimitsTest, ManyRelaysWhoseDaemonsDiskStandsTakeLittle) {
  daemon_.Start({"--max-unsynced-bytes", Bytes(kUnsyncedMiB), "--wire-bytes",
                 Bytes(kWireMiB)});
  const auto requests = LargeBatches();
  const uint64_t all_mib =
      kRelays * kBatches * requests[0].ByteSizeLong() / kMiB;
  ASSERT_GT(all_mib, 3 * (kUnsyncedMiB + kWireMiB + kElseMiB) / 2);
  std::vector<std::unique_ptr<SteadyRelay>> relays;
  for (int i = 0; i < kRelays; ++i) {
    relays.push_back(std::make_unique<SteadyRelay>(&daemon_, i + 1));
  }
  const uint64_t before_mib = PeakMiB();
  daemon_.LimitFileSize(4096);
  std::atomic<uint64_t> sent = 0;
  std::vector<std::thread> threads;
  for (const auto& relay : relays) {
    threads.emplace_back([&] { relay->Deliver(requests, &sent); });
  }
  // As much as they can send; the store looks again every second.
  uint64_t last = 0;
  EXPECT_TRUE(WaitUntil([&] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    return std::exchange(last, sent) == sent && sent > 0;
  }));
  const uint64_t peak_mib = PeakMiB();
  daemon_.LimitFileSize(RLIM_INFINITY);
  for (std::thread& thread : threads) thread.join();
  std::printf("%lu MiB in all; %lu MiB at most, %lu before\n",
              static_cast<unsigned long>(all_mib),
              static_cast<unsigned long>(peak_mib),
              static_cast<unsigned long>(before_mib));
  if (!kSanitized) {
    EXPECT_LT(peak_mib, before_mib + kUnsyncedMiB + kWireMiB + kElseMiB);
  }
  const v1::Run run = GetRun("run");
  EXPECT_EQ(run.records(), kRelays * kBatches * kStates);
  EXPECT_EQ(run.processes_size(), kRelays);
  EXPECT_EQ(run.quarantined_batches(), 0u);
}

// gRPC would take them whole, of whatever size, before it names the limit.
TEST_F(MemoryLimitsTest, RawMessagesOfHundredsOfMegabytesTakeLittle) {
  daemon_.Start({"--wire-bytes", Bytes(kWireMiB)});
  SteadyRelay bystander(&daemon_, 1);
  const uint64_t before_mib = PeakMiB();
  constexpr int kClients = 6;
  const grpc::Slice bytes(std::string(150 * kMiB, 'x'));
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&] { EXPECT_FALSE(SendRaw(bytes).ok()); });
  }
  std::vector<v1::IngestRequest> steps;
  for (uint64_t i = 0; i < 100; ++i) steps.push_back(Request(StepBatch(i)));
  std::atomic<uint64_t> sent = 0;
  bystander.Deliver(steps, &sent);
  for (std::thread& thread : threads) thread.join();
  if (!kSanitized) {
    EXPECT_LT(PeakMiB(), before_mib + kWireMiB + kElseMiB);
  }
  EXPECT_EQ(GetRun("run").records(), 100u);
}

TEST_F(MemoryLimitsTest, StreamsOverTheLimitsAreRefusedAndOthersServed) {
  daemon_.Start({"--max-streams", "6", "--max-streams-of-owner", "3"});
  const auto alice = ChannelOf("alice");
  const auto bob = ChannelOf("bob");
  std::vector<std::unique_ptr<TestRelay>> relays;
  const auto open = [&](const auto& channel, const std::string& run) {
    relays.push_back(std::make_unique<TestRelay>(channel));
    EXPECT_FALSE(
        relays.back()->Greet(MakeHello(run, relays.size())).store_id().empty());
  };
  const auto why_not = [&](const auto& channel) {
    TestRelay relay(channel);
    const grpc::Status status = relay.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    return status.error_message();
  };
  for (int i = 0; i < 3; ++i) open(alice, "hers");
  EXPECT_THAT(why_not(alice), HasSubstr("3 streams of owner alice are open"));
  open(bob, "his");
  for (int i = 0; i < 2; ++i) open(daemon_.Channel(), "own");
  EXPECT_THAT(why_not(bob), HasSubstr("6 streams are open"));
  EXPECT_THAT(why_not(daemon_.Channel()), HasSubstr("6 streams are open"));
  for (const auto& relay : relays) relay->Send(Request(StepBatch(0)));
  for (const auto& relay : relays) EXPECT_TRUE(relay->AwaitAcknowledged(1));
  // A place that gets free is taken by whoever comes back.
  relays.erase(relays.begin());
  EXPECT_TRUE(WaitUntil([&] {
    TestRelay relay(alice);
    return relay.Send(Request(MakeHello("hers", 99))) &&
           relay.Receive().has_welcome();
  }));
}

}  // namespace
}  // namespace traincheck::server
