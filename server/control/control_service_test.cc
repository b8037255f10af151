// The service behind a real port, with watchers that do not read.
#include "server/control/control_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/credentials.h"
#include "base/logging.h"
#include "server/store/rocksdb_store.h"

namespace traincheck {
namespace {

constexpr int kViolations = 20'000;

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
    sets_ = std::make_unique<SetCatalog>(store_.get());
    // All that the calls below ask.
    service_ = std::make_unique<ControlService>(
        ControlService::Dependencies{.store = store_.get(),
                                     .queries = nullptr,
                                     .sets = sets_.get(),
                                     .board = board_.get(),
                                     .jobs = nullptr,
                                     .cleaner = nullptr,
                                     .plans = nullptr,
                                     .checks = nullptr});
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
  std::unique_ptr<SetCatalog> sets_;
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

}  // namespace
}  // namespace traincheck
