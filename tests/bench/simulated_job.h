// A job of simulated ranks: their steps as relays send them, over streams to a
// real daemon, for benchmarks of whole processes.
//
// What goes wrong ends the program with exit code 1 and a line on stderr.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_TESTS_BENCH_SIMULATED_JOB_H_
#define TRAINCHECK_TESTS_BENCH_SIMULATED_JOB_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "invariants/testing/synthetic_training.h"
#include "proto/traincheck/v1/control.grpc.pb.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"

namespace traincheck::server {

using Channels = std::vector<std::shared_ptr<grpc::Channel>>;

// So many connections, each of its own.
Channels Connect(const std::string& address, int count);

v1::IngestRequest RequestOf(const StoredBatch& stored);
// The training's batches, one a step. Adds to `records`.
std::vector<v1::IngestRequest> RequestsOf(const TrainingOptions& options,
                                          int32_t rank, uint64_t* records);

v1::Hello HelloOf(const std::string& run, v1::RunRole role);

// The stream of one rank.
class RankStream {
 public:
  RankStream(const std::shared_ptr<grpc::Channel>& channel,
             const v1::Hello& hello);

  void Send(const v1::IngestRequest& request) { stream_->Write(request); }
  // Waits until all batches below `number` are stored.
  void Await(uint64_t number);
  // How long records are to gather, as the daemon said when something was
  // awaited last.
  std::chrono::milliseconds gather() const { return gather_; }
  // In order: says goodbye and waits for the daemon's last word.
  void End(const std::vector<v1::RingReport>& rings = {});
  // As when the host is gone: no goodbye.
  void Break();

 private:
  std::chrono::milliseconds gather_{0};
  grpc::ClientContext context_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::IngestRequest, v1::IngestReply>>
      stream_;
};

// All ranks of a run.
class Job {
 public:
  Job(const Channels& channels, const TrainingOptions& options,
      const v1::Hello& hello);

  uint64_t records() const { return records_; }
  uint64_t batches() const { return requests_.size() * requests_[0].size(); }

  // Each round is one batch of every rank; the next one begins when all of it
  // is stored.
  void Stream();
  void End();

 private:
  std::vector<std::vector<v1::IngestRequest>> requests_;
  std::vector<std::unique_ptr<RankStream>> ranks_;
  uint64_t records_ = 0;
};

// Learns the set `name` from the run "reference" of two ranks and fifty steps,
// which it streams first.
void Learn(const Channels& channels, const std::string& name);

// The run, once all of it is checked.
v1::Run AwaitChecked(const Channels& channels, const std::string& name);

}  // namespace traincheck::server

#endif  // TRAINCHECK_TESTS_BENCH_SIMULATED_JOB_H_
