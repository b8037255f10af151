#include "server/control/violation_watch.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>

#include "server/access/token_book.h"
#include "server/control/control_service.h"
#include "server/ingest/test_batches.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

// The service with what watchers ask. Nothing but bells wakes them within a
// test: none of them lasts as long as a look for the client.
class ViolationWatchTest : public testing::Test {
 protected:
  ViolationWatchTest() {
    const std::string dir =
        testing::TempDir() + "/watch-" +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir);
    store_ = *OpenRocksdbStore(dir);
    registry_ = *Registry::Load(store_.get(), {});
    board_ = *ViolationBoard::Load(store_.get());
    // Each look at an expiry asks for the time.
    tokens_ = *TokenBook::Load(store_.get(), [this] {
      ++looks_;
      return absl::Now();
    });
    gate_ = std::make_unique<Gate>(tokens_.get());
    sets_ = std::make_unique<SetCatalog>(store_.get());
    marks_ = std::make_unique<Marks>(store_.get());
    silences_ = *Silences::Load(store_.get(), sets_.get());
    violations_ = std::make_unique<ViolationView>(
        ViolationView::Dependencies{.registry = registry_.get(),
                                    .board = board_.get(),
                                    .marks = marks_.get(),
                                    .silences = silences_.get(),
                                    .places = nullptr});
    queries_ = std::make_unique<Queries>(
        Queries::Dependencies{.store = store_.get(),
                              .registry = registry_.get(),
                              .checks = nullptr,
                              .violations = violations_.get(),
                              .sets = sets_.get()});
    registry_->SetEndObserver(
        [this](const std::string& run) { board_->bells().Ring(run); });
    tokens_->SetRevocationObserver([this] { board_->Wake(); });
    Serve();
  }
  ~ViolationWatchTest() override {
    service_->Stop();
    server_->Shutdown();
    store_->Close();
  }

  void Serve() {
    ControlService::Dependencies some = {};
    some.queries = queries_.get();
    some.registry = registry_.get();
    some.board = board_.get();
    some.violations = violations_.get();
    some.gate = gate_.get();
    service_ = std::make_unique<ControlService>(some);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
  }

  v1::CreateTokenReply CreateToken(absl::Duration lasts) {
    v1::CreateTokenRequest request;
    request.set_role(v1::ROLE_VIEWER);
    request.set_owner("alice");
    request.set_expires_unix_ns(absl::ToUnixNanos(absl::Now() + lasts));
    return *tokens_->CreateUntrusted(request);
  }
  StreamId Open(const std::string& run, const std::string& owner) {
    return registry_->Open(MakeHello(run, 1), nullptr, owner)->stream;
  }
  void TrainAndEnd(const StreamId& stream) {
    BatchFacts facts;
    facts.place = PlaceRecord{
        .header = {}, .rank = 0, .world_size = 1, .local_rank = 0, .source = 0};
    ASSERT_TRUE(registry_->AddBatch(stream, StepBatch(0), facts, nullptr).ok());
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    ASSERT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
  }
  // Returns once watchers see it.
  void Post(const std::string& run, const std::string& id) {
    Violation violation;
    violation.id = id;
    violation.run = run;
    violation.count = 1;
    board_->Post(*registry_->NumberOf(run), {violation});
    ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  }

  std::atomic<int> looks_ = 0;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TokenBook> tokens_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<Marks> marks_;
  std::unique_ptr<Silences> silences_;
  std::unique_ptr<ViolationView> violations_;
  std::unique_ptr<Queries> queries_;
  std::unique_ptr<ControlService> service_;
  std::unique_ptr<grpc::Server> server_;
};

class Client {
 public:
  Client(grpc::Server* server, const std::string& token, const std::string& run)
      : stub_(v1::Control::NewStub(server->InProcessChannel({}))) {
    context_.AddMetadata("authorization", "Bearer " + token);
    v1::WatchViolationsRequest request;
    request.set_run(run);
    reader_ = stub_->WatchViolations(&context_, request);
    reader_->WaitForInitialMetadata();
  }
  ~Client() { context_.TryCancel(); }

  // The id of the next one; "" at the end.
  std::string Read() {
    v1::Violation violation;
    return reader_->Read(&violation) ? violation.id() : "";
  }
  grpc::StatusCode End() {
    EXPECT_EQ(Read(), "");
    return reader_->Finish().error_code();
  }

 private:
  std::unique_ptr<v1::Control::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Violation>> reader_;
};

TEST_F(ViolationWatchTest, EndsWithItsRun) {
  const StreamId stream = Open("run", "alice");
  Client client(server_.get(), CreateToken(absl::Hours(1)).text(), "run");
  Post("run", "a");
  EXPECT_EQ(client.Read(), "a");
  TrainAndEnd(stream);
  EXPECT_EQ(client.End(), grpc::StatusCode::OK);
}

TEST_F(ViolationWatchTest, EndsWhenItsTokenIsRevoked) {
  const v1::CreateTokenReply token = CreateToken(absl::Hours(1));
  Client client(server_.get(), token.text(), "");
  ASSERT_TRUE(tokens_->Revoke(token.token().id()).ok());
  EXPECT_EQ(client.End(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(ViolationWatchTest, EndsWhenItsTokenExpires) {
  Client client(server_.get(), CreateToken(absl::Milliseconds(500)).text(), "");
  EXPECT_EQ(client.End(), grpc::StatusCode::UNAUTHENTICATED);
}

// What others' runs do costs a watcher nothing.
TEST_F(ViolationWatchTest, LooksWhenSomethingConcernsIt) {
  Open("run", "alice");
  Open("other", "bob");
  Client client(server_.get(), CreateToken(absl::Hours(1)).text(), "run");
  Post("run", "a");
  EXPECT_EQ(client.Read(), "a");
  const int before = looks_;
  for (int i = 0; i < 200; ++i) Post("other", "x" + std::to_string(i));
  Post("run", "b");
  EXPECT_EQ(client.Read(), "b");
  // For b, and perhaps once more for a, which had been read by then.
  EXPECT_LE(looks_ - before, 2);
}

// A watcher of all runs gets those that it may see.
TEST_F(ViolationWatchTest, OthersRunsAreNotShown) {
  Open("run", "alice");
  Open("other", "bob");
  Client client(server_.get(), CreateToken(absl::Hours(1)).text(), "");
  Post("other", "x");
  Post("run", "a");
  EXPECT_EQ(client.Read(), "a");
  Client theirs(server_.get(), CreateToken(absl::Hours(1)).text(), "other");
  EXPECT_EQ(theirs.End(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace traincheck::server
