#include "server/control/feedback_service.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "server/access/token_book.h"
#include "server/feedback/shown_violations_for_testing.h"

namespace traincheck::server {
namespace {

class FeedbackServiceTest : public ShownViolationsTest {
 protected:
  FeedbackServiceTest()
      : tokens_(*TokenBook::Load(store_.get())),
        gate_(tokens_.get()),
        // All that the calls below ask.
        service_({.registry = registry_.get(),
                  .violations = violations_.get(),
                  .marks = marks_.get(),
                  .silences = silences_.get(),
                  .review = nullptr,
                  .policy = nullptr,
                  .caller = nullptr,
                  .gate = &gate_}) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~FeedbackServiceTest() override { server_->Shutdown(); }

  // What the only silence covers, as somebody with this role hears it.
  uint64_t Covered(v1::Role role, const std::string& owner) {
    v1::CreateTokenRequest request;
    request.set_role(role);
    request.set_owner(owner);
    const auto made = tokens_->CreateUntrusted(request);
    EXPECT_TRUE(made.ok()) << made.status();
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + made->text());
    const auto stub = v1::Feedback::NewStub(server_->InProcessChannel({}));
    const auto reader = stub->ListSilences(&context, {});
    v1::Silence silence;
    EXPECT_TRUE(reader->Read(&silence));
    EXPECT_TRUE(reader->Finish().ok());
    return silence.covered();
  }

  std::unique_ptr<TokenBook> tokens_;
  Gate gate_;
  FeedbackService service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(FeedbackServiceTest, ASilenceSaysWhatItCoversOfWhatTheCallerSees) {
  Begin("ada-1", "ada");
  Begin("ada-2", "ada");
  Begin("bob-1", "bob");
  for (const char* run : {"ada-1", "ada-2", "bob-1"}) {
    Post(run, std::string("of-") + run);
  }
  ASSERT_TRUE(ComesTrue([&] { return board_->Revision() == 3; }));
  v1::Silence silence;
  silence.set_variable("head.*");
  silence.set_comment("known");
  ASSERT_TRUE(silences_->AddUntrusted(silence).ok());
  EXPECT_EQ(Covered(v1::ROLE_VIEWER, "ada"), 2u);
  EXPECT_EQ(Covered(v1::ROLE_VIEWER, "bob"), 1u);
  EXPECT_EQ(Covered(v1::ROLE_ADMIN, ""), 3u);
}

}  // namespace
}  // namespace traincheck::server
