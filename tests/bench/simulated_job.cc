#include "tests/bench/simulated_job.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/credentials.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMostWaiting = std::chrono::minutes(3);

}  // namespace

Channels Connect(const std::string& address, int count) {
  Channels channels;
  for (int i = 0; i < count; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("number", i);  // a connection of its own
    channels.push_back(*MakeChannel(address, arguments));
  }
  return channels;
}

v1::IngestRequest RequestOf(const StoredBatch& stored) {
  v1::Batch batch;
  batch.set_number(stored.number);
  for (const RingSlice& slice : stored.slices) {
    v1::Slice& sent = *batch.add_slices();
    sent.set_ring(slice.ring);
    sent.set_from(slice.from);
    sent.set_to(slice.to);
    sent.set_records(slice.records);
  }
  batch.set_plain_bytes(static_cast<uint32_t>(stored.plain.size()));
  batch.set_payload(Compress(stored.plain));
  return Request(batch);
}

std::vector<v1::IngestRequest> RequestsOf(const TrainingOptions& options,
                                          int32_t rank, uint64_t* records) {
  std::vector<v1::IngestRequest> requests;
  for (const StoredBatch& step : TrainRank(options, rank)) {
    for (const RingSlice& slice : step.slices) *records += slice.records;
    requests.push_back(RequestOf(step));
  }
  return requests;
}

v1::Hello HelloOf(const std::string& run, v1::RunRole role) {
  v1::Hello hello = MakeHello(run, 0);
  hello.set_experiment("ranks");
  hello.set_role(role);
  return hello;
}

RankStream::RankStream(const std::shared_ptr<grpc::Channel>& channel,
                       const v1::Hello& hello)
    : stub_(v1::Ingest::NewStub(channel)), stream_(stub_->Stream(&context_)) {
  stream_->Write(Request(hello));
}

void RankStream::Await(uint64_t number) {
  v1::IngestReply reply;
  while (reply.acknowledged().next_batch() < number) {
    if (!stream_->Read(&reply)) {
      const grpc::Status status = stream_->Finish();
      std::fprintf(stderr, "a stream ended: %s\n",
                   status.error_message().c_str());
      std::exit(1);
    }
    gather_ = std::chrono::milliseconds(reply.acknowledged().gather_ms());
  }
}

void RankStream::End(const std::vector<v1::RingReport>& rings) {
  stream_->Write(GoodbyeRequest(v1::END_KIND_CLEAN, rings));
  stream_->WritesDone();
  v1::IngestReply reply;
  while (stream_->Read(&reply)) {
  }
  stream_->Finish();
}

void RankStream::Break() {
  context_.TryCancel();
  v1::IngestReply reply;
  while (stream_->Read(&reply)) {
  }
  stream_->Finish();
}

Job::Job(const Channels& channels, const TrainingOptions& options,
         const v1::Hello& hello) {
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    requests_.push_back(RequestsOf(options, rank, &records_));
  }
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    v1::Hello mine = hello;
    mine.mutable_process()->set_pid(1000 + static_cast<uint32_t>(rank));
    ranks_.push_back(std::make_unique<RankStream>(
        channels[static_cast<size_t>(rank) % channels.size()], mine));
  }
}

void Job::Stream() {
  for (size_t round = 0; round < requests_[0].size(); ++round) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i]->Send(requests_[i][round]);
    }
    for (const auto& rank : ranks_) rank->Await(round + 1);
  }
}

void Job::End() {
  for (const auto& rank : ranks_) rank->End();
}

void Learn(const Channels& channels, const std::string& name) {
  TrainingOptions options;
  options.steps = 50;
  Job job(channels, options, HelloOf("reference", v1::RUN_ROLE_REFERENCE));
  job.Stream();
  job.End();
  const auto stub = v1::Control::NewStub(channels[0]);
  grpc::ClientContext context;
  v1::InferRequest request;
  request.add_runs("reference");
  request.set_set(name);
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

}  // namespace traincheck::server
