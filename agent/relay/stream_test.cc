// A stream to a real gRPC server.
#include "agent/relay/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "grpcpp/grpcpp.h"
#include "grpcpp/resource_quota.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"

namespace traincheck::agent {
namespace {

using testing::HasSubstr;

class RefusingServer : public v1::Ingest::Service {
 public:
  // `memory_bytes`: what gRPC may hold.
  explicit RefusingServer(size_t memory_bytes) {
    grpc::ServerBuilder builder;
    grpc::ResourceQuota memory;
    memory.Resize(memory_bytes);
    builder.SetResourceQuota(memory);
    builder.SetMaxReceiveMessageSize(-1);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    channel_ = *MakeRelayChannel("127.0.0.1:" + std::to_string(port), {});
  }
  ~RefusingServer() override { server_->Shutdown(); }

  grpc::Status Stream(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::IngestReply, v1::IngestRequest>* stream)
      override {
    v1::IngestRequest request;
    stream->Read(&request);
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the limit is 7"};
  }

  // How a stream ends whose first message is this large.
  absl::Status EndAfter(size_t bytes) {
    v1::Hello hello;
    hello.set_script(std::string(bytes, 'x'));
    IngestStream stream(channel_, hello, [] {});
    while (true) {
      if (const auto news = stream.TakeNews(); news.ended.has_value()) {
        return *news.ended;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

// The relay gives up a batch that a daemon refuses again and again, and must
// not do that where the daemon has said nothing of the batch.
TEST(IngestStreamTest, AServerThatLacksMemoryBlamesNoMessage) {
  RefusingServer server(8 << 20);
  const absl::Status said = server.EndAfter(100);
  EXPECT_EQ(said.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(said.message(), "the limit is 7");
  const absl::Status broken = server.EndAfter(100 << 20);
  EXPECT_EQ(broken.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(broken.message()), HasSubstr("too much to hold"));
}

}  // namespace
}  // namespace traincheck::agent
