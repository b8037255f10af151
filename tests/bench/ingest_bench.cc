// Records per CPU second of the daemon, from gRPC into RocksDB with a synced
// WAL. Starts the real traincheckd on a fresh directory, streams batches that
// were made before, waits until all are acknowledged and reads the daemon's
// CPU time from /proc. Then kills it and measures how soon it is back.
//
//   tests/bench/run.sh ingest_bench [streams [batches]]
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/credentials.h"
#include "proto/traincheck/v1/control.grpc.pb.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"
#include "server/ingest/test_batches.h"
#include "tests/bench/daemon_process.h"

namespace traincheck::server {
namespace {

constexpr int kCallsInBatch = 5000;  // 264 KB of records
constexpr int kCallsForState = 5;    // one digest for so many calls
constexpr int kRecordsInBatch =
    2 * kCallsInBatch + kCallsInBatch / kCallsForState;

using Clock = std::chrono::steady_clock;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The same content at the position of each batch.
std::vector<v1::IngestRequest> MakeRequests(int count) {
  std::mt19937_64 digests;  // as incompressible as real ones
  std::string records;
  for (uint32_t call = 1; call <= kCallsInBatch; ++call) {
    records += CallRecords(call);
    if (call % kCallsForState == 0) {
      records += StateRecordOf(call % 100, digests());
    }
  }
  v1::Batch batch = MakeBatch(
      0,
      {{.ring = 1, .from = 0, .bytes = records, .records = kRecordsInBatch}});
  std::vector<v1::IngestRequest> requests;
  for (int i = 0; i < count; ++i) {
    batch.set_number(i);
    batch.mutable_slices(0)->set_from(i * records.size());
    batch.mutable_slices(0)->set_to((i + 1) * records.size());
    requests.push_back(Request(batch));
  }
  return requests;
}

void StreamAll(const std::string& address, uint32_t pid,
               const std::vector<v1::IngestRequest>& requests) {
  const auto channel = *MakeChannel(address, grpc::ChannelArguments());
  const auto stub = v1::Ingest::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->Stream(&context);
  stream->Write(Request(MakeHello("bench", pid)));
  std::thread writer([&] {
    for (const v1::IngestRequest& request : requests) stream->Write(request);
  });
  v1::IngestReply reply;
  while (stream->Read(&reply)) {
    if (reply.acknowledged().next_batch() == requests.size()) break;
  }
  writer.join();
  stream->Write(GoodbyeRequest(v1::END_KIND_CLEAN, {}));
  stream->WritesDone();
  while (stream->Read(&reply)) {
  }
  stream->Finish();
}

v1::Run GetRun(const std::string& address) {
  const auto stub =
      v1::Control::NewStub(*MakeChannel(address, grpc::ChannelArguments()));
  grpc::ClientContext context;
  v1::GetRunRequest request;
  request.set_run("bench");
  v1::Run run;
  stub->GetRun(&context, request, &run);
  return run;
}

// Kills the daemon, starts it on what it left and waits until it answers.
double RestartSeconds(const std::string& program, const std::string& folder,
                      DaemonProcess* daemon) {
  daemon->Kill();
  const auto start = Clock::now();
  const DaemonProcess again(program, folder);
  GetRun(again.address());
  return Seconds(Clock::now() - start);
}

int Main(const std::string& program, int streams, int batches) {
  char folder[] = "/tmp/ingest-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::vector<v1::IngestRequest> requests = MakeRequests(batches);
  DaemonProcess daemon(program, folder);
  const std::string& address = daemon.address();

  const double cpu_before = daemon.CpuSeconds();
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 1; i <= streams; ++i) {
    threads.emplace_back(
        [&, i] { StreamAll(address, static_cast<uint32_t>(i), requests); });
  }
  for (std::thread& thread : threads) thread.join();
  const double wall_s = Seconds(Clock::now() - start);
  const double cpu_s = daemon.CpuSeconds() - cpu_before;
  const v1::Run run = GetRun(address);

  std::printf("streams %d, batches %d each, stored records %lu\n", streams,
              batches, static_cast<unsigned long>(run.records()));
  std::printf("records per CPU second of the daemon: %.0f\n",
              run.records() / cpu_s);
  std::printf("stored bytes per record: %.2f\n",
              static_cast<double>(run.stored_bytes()) / run.records());
  std::printf("records per second: %.0f (%.2f s, CPU %.2f s)\n",
              run.records() / wall_s, wall_s, cpu_s);
  const double restart_s = RestartSeconds(program, folder, &daemon);
  std::printf("a killed daemon answers again after %.2f s\n", restart_s);
  std::filesystem::remove_all(folder);
  const auto expected =
      static_cast<uint64_t>(streams) * batches * kRecordsInBatch;
  return run.records() == expected ? 0 : 1;
}

}  // namespace
}  // namespace traincheck::server

int main(int argc, char** argv) {
  const std::string program =
      std::string(argv[0]) + ".runfiles/traincheckd/server/traincheckd";
  return traincheck::server::Main(program, argc > 1 ? std::atoi(argv[1]) : 2,
                                  argc > 2 ? std::atoi(argv[2]) : 400);
}
