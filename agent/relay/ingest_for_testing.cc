#include "agent/relay/ingest_for_testing.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <thread>
#include <utility>

#include "base/credentials.h"
#include "grpcpp/server_builder.h"
#include "proto/record_reader.h"

namespace traincheck::agent {
namespace {

constexpr std::chrono::milliseconds kNap{2};

std::string Decompress(const v1::Batch& batch) {
  std::string plain(batch.plain_bytes(), '\0');
  const size_t size =
      ZSTD_decompress(plain.data(), plain.size(), batch.payload().data(),
                      batch.payload().size());
  return size == plain.size() ? plain : "";
}

void StoreSlice(const v1::Slice& slice, std::string_view bytes,
                StoredProcess* process) {
  uint64_t& position = process->positions[slice.ring()];
  if (slice.from() < position) {
    process->faults.push_back("a slice straddles what is stored");
  } else if (slice.from() > position) {
    process->missing[slice.ring()] += slice.from() - position;
  }
  position = slice.to();
  uint64_t records = 0;
  const std::string aligned(bytes);
  RecordReader reader(aligned);
  while (reader.Next()) {
    if (reader.type() != RecordType::kPadding) ++records;
    if (reader.type() == RecordType::kMark) {
      process->marks.push_back(reader.Get<MarkRecord>().value);
    }
  }
  if (!reader.ok()) process->faults.push_back(reader.error());
  if (records != slice.records()) process->faults.push_back("wrong count");
  process->records[slice.ring()] += records;
}

}  // namespace

v1::Welcome StoreForTesting::Open(const v1::Hello& hello) {
  std::lock_guard<std::mutex> lock(mutex_);
  StoredProcess& process = processes_[hello.process().pid()];
  process.hello = hello;
  v1::Welcome welcome;
  welcome.set_store_id(id_);
  welcome.set_next_batch(process.next_batch);
  for (const auto& [ring, position] : process.positions) {
    v1::RingCursor* cursor = welcome.add_rings();
    cursor->set_ring(ring);
    cursor->set_position(position);
    cursor->set_records(process.records[ring]);
  }
  return welcome;
}

uint64_t StoreForTesting::Put(uint32_t pid, const v1::Batch& batch) {
  std::lock_guard<std::mutex> lock(mutex_);
  StoredProcess& process = processes_[pid];
  if (batch.number() < process.next_batch) return process.next_batch;
  if (batch.number() > process.next_batch) {
    process.faults.push_back("a batch is missing");
  }
  process.next_batch = batch.number() + 1;
  if (batch.quiet_monotonic_ns() != 0) {
    process.quiet_ns.push_back(batch.quiet_monotonic_ns());
  }
  const std::string plain = Decompress(batch);
  size_t at = 0;
  for (const v1::Slice& slice : batch.slices()) {
    StoreSlice(slice,
               std::string_view(plain).substr(at, slice.to() - slice.from()),
               &process);
    at += slice.to() - slice.from();
  }
  if (at != plain.size()) process.faults.push_back("slices and payload differ");
  return process.next_batch;
}

void StoreForTesting::Put(uint32_t pid, const v1::RingReports& reports) {
  std::lock_guard<std::mutex> lock(mutex_);
  processes_[pid].reports = reports;
}

void StoreForTesting::Put(uint32_t pid, const v1::Goodbye& goodbye) {
  std::lock_guard<std::mutex> lock(mutex_);
  processes_[pid].goodbye = goodbye;
}

StoredProcess StoreForTesting::Get(pid_t pid) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = processes_.find(static_cast<uint32_t>(pid));
  return found == processes_.end() ? StoredProcess() : found->second;
}

size_t StoreForTesting::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return processes_.size();
}

bool StoreForTesting::WaitFor(
    pid_t pid, const std::function<bool(const StoredProcess&)>& condition,
    std::chrono::milliseconds within) const {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!condition(Get(pid))) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kNap);
  }
  return true;
}

IngestForTesting::IngestForTesting(StoreForTesting* store,
                                   const std::string& address,
                                   const Behaviour& behaviour)
    : store_(store), behaviour_(behaviour), address_(address) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address, MakeServerCredentials(address).value(),
                           &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  EXPECT_NE(server_, nullptr) << address;
  const std::string any_port = ":0";
  if (address.ends_with(any_port)) {
    address_.replace(address.size() - 1, 1, std::to_string(port));
  }
}

IngestForTesting::~IngestForTesting() {
  stopping_ = true;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

grpc::Status IngestForTesting::Stream(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::IngestReply, v1::IngestRequest>* stream) {
  ++streams_;
  v1::IngestRequest request;
  if (!stream->Read(&request) || !request.has_hello()) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "no hello"};
  }
  if (!behaviour_.refusal.ok() && refused_++ < behaviour_.refuses) {
    return behaviour_.refusal;
  }
  if (!behaviour_.welcomes) {
    WaitForEnd(context);
    return grpc::Status::OK;
  }
  const uint32_t pid = request.hello().process().pid();
  v1::IngestReply reply;
  v1::Welcome* welcome = reply.mutable_welcome();
  *welcome = store_->Open(request.hello());
  if (!behaviour_.tells_rings) welcome->clear_rings();
  welcome->set_format_version(1);
  welcome->set_credit_bytes(behaviour_.credit_bytes);
  welcome->set_takes_quiet(behaviour_.takes_quiet);
  stream->Write(reply);
  if (behaviour_.plan.has_value()) {
    *reply.mutable_plan_change() = *behaviour_.plan;
    stream->Write(reply);
  }
  if (!behaviour_.acknowledges) {
    WaitForEnd(context);
    return grpc::Status::OK;
  }
  while (stream->Read(&request)) {
    if (request.has_batch() && Hates(request.batch())) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "this batch is not liked"};
    }
    if (Answer(pid, request, &reply)) stream->Write(reply);
  }
  return grpc::Status::OK;
}

bool IngestForTesting::Hates(const v1::Batch& batch) const {
  if (!behaviour_.hates_mark.has_value()) return false;
  const std::string plain = Decompress(batch);
  RecordReader records(plain);
  while (records.Next()) {
    if (records.type() == RecordType::kMark &&
        records.Get<MarkRecord>().value == *behaviour_.hates_mark) {
      return true;
    }
  }
  return false;
}

bool IngestForTesting::Answer(uint32_t pid, const v1::IngestRequest& request,
                              v1::IngestReply* reply) {
  v1::Acknowledged* acknowledged = reply->mutable_acknowledged();
  acknowledged->set_gather_ms(behaviour_.gather_ms);
  if (request.has_batch()) {
    acknowledged->set_next_batch(store_->Put(pid, request.batch()));
    return true;
  }
  if (request.has_goodbye()) {
    store_->Put(pid, request.goodbye());
    acknowledged->set_next_batch(
        store_->Get(static_cast<pid_t>(pid)).next_batch);
    acknowledged->set_goodbye(true);
    return true;
  }
  if (request.has_ring_reports()) store_->Put(pid, request.ring_reports());
  return false;
}

void IngestForTesting::WaitForEnd(grpc::ServerContext* context) const {
  while (!stopping_ && !context->IsCancelled()) {
    std::this_thread::sleep_for(kNap);
  }
}

}  // namespace traincheck::agent
