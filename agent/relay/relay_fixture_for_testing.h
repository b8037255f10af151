// A test with a real relay, a server that it can make behave badly, and their
// folder.
#ifndef TRAINCHECK_AGENT_RELAY_RELAY_FIXTURE_FOR_TESTING_H_
#define TRAINCHECK_AGENT_RELAY_RELAY_FIXTURE_FOR_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/relay/harness_for_testing.h"
#include "agent/relay/ingest_for_testing.h"
#include "agent/relay/spool_for_testing.h"

namespace traincheck::agent {

class RelayFixture : public testing::Test {
 protected:
  using Behaviour = IngestForTesting::Behaviour;

  RelayFixture() {
    // Under /tmp, because the path of a unix socket must be short.
    char name[] = "/tmp/relay-test-XXXXXX";
    folder_ = mkdtemp(name);
    address_ = "unix:" + folder_ + "/server";
  }
  ~RelayFixture() override {
    server_.reset();
    relay_.reset();
    std::filesystem::remove_all(folder_);
  }

  void StartServer(const Behaviour& behaviour = {}) {
    server_.reset();
    server_ = std::make_unique<IngestForTesting>(&store_, address_, behaviour);
    address_ = server_->address();
  }

  void StartRelay(Environment environment = {}) {
    environment.emplace("TRAINCHECK_SERVER", address_);
    relay_ = std::make_unique<RelayProcess>(folder_, environment);
  }

  // Everything that a process committed is stored, once and in order.
  void ExpectComplete(pid_t pid, size_t marks, v1::EndKind end) {
    const StoredProcess stored = store_.Get(pid);
    EXPECT_TRUE(stored.faults.empty()) << stored.faults[0];
    EXPECT_TRUE(stored.missing.empty());
    ExpectMarks(stored.marks, 0, marks);
    ASSERT_TRUE(stored.goodbye.has_value());
    EXPECT_EQ(stored.goodbye->end(), end);
    ASSERT_EQ(stored.goodbye->rings_size(), 2);
    for (const v1::RingReport& ring : stored.goodbye->rings()) {
      EXPECT_EQ(ring.committed_records(), stored.records.at(ring.ring()));
      EXPECT_EQ(ring.offered_records(), ring.committed_records());
      EXPECT_EQ(ring.dropped_records(), 0u);
      EXPECT_EQ(ring.head(), stored.positions.at(ring.ring()));
    }
  }

  static void ExpectMarks(const std::vector<uint64_t>& marks, uint64_t first,
                          size_t count) {
    ASSERT_EQ(marks.size(), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(marks[i], first + i);
  }

  bool WaitForMarks(pid_t pid, size_t count) {
    return store_.WaitFor(
        pid, [count](const auto& p) { return p.marks.size() >= count; },
        std::chrono::seconds(60));
  }

  std::vector<std::string> Spools() { return SpoolFiles(folder_ + "/spool"); }

  // Not because its grace of 30 s is over.
  void ExpectExit(int status,
                  std::chrono::milliseconds within = std::chrono::seconds(25)) {
    EXPECT_EQ(relay_->Wait(within), std::optional<int>(status))
        << relay_->Stderr();
  }

  std::string folder_;
  std::string address_;
  StoreForTesting store_{"store"};
  std::unique_ptr<IngestForTesting> server_;
  std::unique_ptr<RelayProcess> relay_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_RELAY_FIXTURE_FOR_TESTING_H_
