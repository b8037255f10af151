#include "ctl/delivery.h"

#include <atomic>

#include "base/credentials.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/traincheck/v1/ingest.grpc.pb.h"

namespace traincheck::ctl {
namespace {

using Time = std::chrono::system_clock::time_point;

// Takes all that it is sent, and answers so often.
class FakeIngest final : public v1::Ingest::Service {
 public:
  explicit FakeIngest(int answers) : answers_(answers) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0",
                             *MakeServerCredentials("127.0.0.1:0"), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeIngest() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const std::string& address() const { return address_; }
  bool limited() const { return limited_; }
  uint64_t batches() const { return batches_; }

  grpc::Status Stream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::IngestReply, v1::IngestRequest>* stream)
      override {
    limited_ = context->deadline() != Time::max();
    batches_ = 0;
    v1::IngestRequest request;
    for (int answered = 0; stream->Read(&request);) {
      v1::IngestReply reply;
      if (request.has_hello()) {
        reply.mutable_welcome();
      } else {
        batches_ += request.has_batch();
        reply.mutable_acknowledged()->set_next_batch(batches_);
        reply.mutable_acknowledged()->set_goodbye(request.has_goodbye());
      }
      if (answered++ < answers_) stream->Write(reply);
    }
    return grpc::Status::OK;
  }

 private:
  const int answers_;
  std::atomic<bool> limited_{false};
  std::atomic<uint64_t> batches_{0};
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

StoredBatch BatchOf(uint64_t number) {
  StoredBatch batch;
  batch.number = number;
  batch.plain = "records";
  return batch;
}

// A large trace takes hours to convert, and the stream is open meanwhile.
TEST(DeliveryTest, AProcessMayTakeAnyTime) {
  FakeIngest server(1000);
  const auto delivery = Delivery::Make(server.address());
  ASSERT_TRUE(delivery.ok()) << delivery.status();
  for (int process = 0; process < 2; ++process) {
    ASSERT_TRUE((*delivery)->Begin(v1::Hello()).ok());
    EXPECT_FALSE(server.limited());
    for (uint64_t number = 0; number < 20; ++number) {
      ASSERT_TRUE((*delivery)->Send(BatchOf(number)).ok());
    }
    const absl::Status end = (*delivery)->End({});
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_EQ(server.batches(), 20u);
  }
}

TEST(DeliveryTest, AServerThatDoesNotAnswerIsNotWaitedForLong) {
  for (int answers : {0, 1, 3}) {
    FakeIngest server(answers);
    const auto delivery =
        Delivery::Make(server.address(), std::chrono::milliseconds(200));
    ASSERT_TRUE(delivery.ok()) << delivery.status();
    absl::Status status = (*delivery)->Begin(v1::Hello());
    for (uint64_t number = 0; status.ok() && number < 20; ++number) {
      status = (*delivery)->Send(BatchOf(number));
    }
    EXPECT_EQ(status, absl::UnavailableError("no answer in time")) << answers;
  }
}

TEST(DeliveryTest, AServerThatIsNotThereIsUnavailable) {
  const auto delivery = Delivery::Make("127.0.0.1:9");
  ASSERT_TRUE(delivery.ok()) << delivery.status();
  EXPECT_EQ((*delivery)->Begin(v1::Hello()).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ((*delivery)->End({}).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace traincheck::ctl
