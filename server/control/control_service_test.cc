// The service behind a real port, with watchers that do not read.
#include "server/control/control_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/credentials.h"
#include "base/logging.h"
#include "base/sanitized.h"
#include "invariants/rules/invariant.h"
#include "invariants/sets/invariant_for_testing.h"
#include "invariants/sets/set_json.h"
#include "server/access/token_book.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

constexpr int kViolations = kThreadSanitized ? 300 : 20'000;

std::vector<Violation> MakeViolations(int count) {
  std::vector<Violation> violations(count);
  for (int i = 0; i < count; ++i) {
    violations[i].id = "v" + std::to_string(i);
    violations[i].run = "run";
    violations[i].count = 1;
    violations[i].text = std::string(1000, 'x');
  }
  return violations;
}

class ControlServiceTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    InitLogging("control_service_test", "error");  // not a line a violation
  }
  ControlServiceTest() {
    const std::string dir = testing::TempDir() + "/control";
    std::filesystem::remove_all(dir);
    store_ = *OpenRocksdbStore(dir);
    board_ = *ViolationBoard::Load(store_.get());
    registry_ = *Registry::Load(store_.get(), {});
    sets_ = std::make_unique<SetCatalog>(store_.get());
    marks_ = std::make_unique<Marks>(store_.get());
    silences_ = *Silences::Load(store_.get(), sets_.get());
    violations_ = std::make_unique<ViolationView>(
        ViolationView::Dependencies{.registry = registry_.get(),
                                    .board = board_.get(),
                                    .marks = marks_.get(),
                                    .silences = silences_.get(),
                                    .places = nullptr});
    // All that the calls below ask.
    service_ = std::make_unique<ControlService>(
        ControlService::Dependencies{.store = store_.get(),
                                     .queries = nullptr,
                                     .registry = registry_.get(),
                                     .sets = sets_.get(),
                                     .policy = nullptr,
                                     .board = board_.get(),
                                     .violations = violations_.get(),
                                     .jobs = nullptr,
                                     .cleaner = nullptr,
                                     .plans = nullptr,
                                     .checks = nullptr,
                                     .gate = &gate_});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0",
                             *MakeServerCredentials("127.0.0.1:0"), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~ControlServiceTest() override {
    service_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    store_->Close();
  }

  std::string address_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<Marks> marks_;
  std::unique_ptr<Silences> silences_;
  std::unique_ptr<ViolationView> violations_;
  Gate gate_{nullptr};
  std::unique_ptr<ControlService> service_;
  std::unique_ptr<grpc::Server> server_;
};

class Watcher {
 public:
  explicit Watcher(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Control::NewStub(*MakeChannel(address, arguments));
    reader_ = stub_->WatchViolations(&context_, {});
    reader_->WaitForInitialMetadata();
  }
  ~Watcher() { context_.TryCancel(); }

  // The ids of the next `count` messages.
  std::set<std::string> Read(size_t count) {
    std::set<std::string> ids;
    v1::Violation violation;
    for (size_t i = 0; i < count && reader_->Read(&violation); ++i) {
      ids.insert(violation.id());
    }
    return ids;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Control::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::Violation>> reader_;
};

// 20 MB that it does not read fill the buffers of its connection many times.
TEST_F(ControlServiceTest, AWatcherThatDoesNotReadHoldsUpNobody) {
  std::vector<std::unique_ptr<Watcher>> slow;
  for (int i = 0; i < 10; ++i) {
    slow.push_back(std::make_unique<Watcher>(address_));
  }
  Watcher quick(address_);
  for (const Violation& violation : MakeViolations(kViolations)) {
    board_->Post(1, {violation});
  }
  EXPECT_EQ(quick.Read(kViolations).size(), static_cast<size_t>(kViolations));
  // Late, but nothing escapes it.
  EXPECT_EQ(slow[0]->Read(kViolations).size(),
            static_cast<size_t>(kViolations));
}

// A set of `rules` rules in its exchange form.
std::string SetJson(int rules) {
  InvariantSet set;
  set.name = "large";
  for (int i = 0; i < rules; ++i) {
    Invariant rule = NewInvariant(
        "EventContain",
        {{"window",
          {{"kind", "call"},
           {"function", {{"name", absl::StrCat("train.Net", i, ".forward")}}}}},
         {"event",
          {{"kind", "call"},
           {"function", {{"name", "torch.nn.modules.dropout.Dropout.forward"}}},
           {"binding", "any"}}}});
    rule.scope = Scope::kExperiment;
    rule.experiments = {std::string(6000, 'e')};  // few rules, many bytes
    rule.support = 12;
    set.invariants.push_back(std::move(rule));
  }
  std::sort(set.invariants.begin(), set.invariants.end(),
            [](const Invariant& a, const Invariant& b) { return a.id < b.id; });
  return ToJson(set).dump();
}

// The daemon's limit on messages and the client's, 4 MiB here, bound no set.
TEST_F(ControlServiceTest, SetsOfAnySizeGoInAndOut) {
  if (kThreadSanitized) GTEST_SKIP() << "too many bytes";
  constexpr int kRules = 3'000;
  const std::string json = SetJson(kRules);
  ASSERT_GT(json.size(), size_t{kMaxReceiveBytes});
  const auto stub = v1::Control::NewStub(*MakeChannel(address_, {}));
  v1::SetSummary summary;
  {
    grpc::ClientContext context;
    const auto writer = stub->ImportSetInParts(&context, &summary);
    v1::ImportSetPart part;
    part.set_name("mine");
    for (size_t from = 0; from < json.size(); from += 1 << 20) {
      part.set_json(json.substr(from, 1 << 20));
      ASSERT_TRUE(writer->Write(part));
      part.Clear();
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(summary.name(), "mine");
  EXPECT_EQ(summary.invariants(), static_cast<uint32_t>(kRules));
  grpc::ClientContext context;
  v1::GetSetRequest request;
  request.set_name("mine@1");
  const auto reader = stub->GetSetInParts(&context, request);
  v1::SetPart part;
  v1::SetDetail whole;
  while (reader->Read(&part)) {
    if (part.has_summary()) *whole.mutable_summary() = part.summary();
    whole.mutable_invariants()->MergeFrom(part.invariants());
    whole.mutable_json()->append(part.json());
  }
  ASSERT_TRUE(reader->Finish().ok());
  EXPECT_EQ(whole.summary().version(), 1u);
  EXPECT_EQ(whole.invariants_size(), kRules);
  EXPECT_EQ(whole.json(), sets_->Detail("mine")->json());
}

TEST_F(ControlServiceTest, ASetOverTheLimitIsNamed) {
  if (kThreadSanitized) GTEST_SKIP() << "too many bytes";
  const auto stub = v1::Control::NewStub(*MakeChannel(address_, {}));
  grpc::ClientContext context;
  v1::SetSummary summary;
  const auto writer = stub->ImportSetInParts(&context, &summary);
  v1::ImportSetPart part;
  part.set_json(std::string(1 << 20, ' '));
  while (writer->Write(part)) {
  }
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), testing::HasSubstr("more than 96 MiB"));
}

// Between the gate and the service a token may be revoked.
TEST_F(ControlServiceTest, NobodyImportsNoSet) {
  const auto tokens = *TokenBook::Load(store_.get());
  const Gate gate(tokens.get());
  ControlService::Dependencies some = {};
  some.sets = sets_.get();
  some.gate = &gate;
  ControlService service(some);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const auto stub = v1::Control::NewStub(server->InProcessChannel({}));
  InvariantSet set;
  set.name = "mine";
  const std::string json = ToJson(set).dump();
  {
    grpc::ClientContext context;
    v1::ImportSetRequest request;
    request.set_json(json);
    v1::SetSummary summary;
    EXPECT_EQ(stub->ImportSet(&context, request, &summary).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    v1::SetSummary summary;
    const auto writer = stub->ImportSetInParts(&context, &summary);
    v1::ImportSetPart part;
    part.set_json(json);
    writer->Write(part);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  EXPECT_TRUE(absl::IsNotFound(sets_->Detail("mine").status()));
  server->Shutdown();
}

}  // namespace
}  // namespace traincheck::server
