#include "agent/relay/jitter.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace traincheck::agent {
namespace {

using std::chrono::milliseconds;

constexpr int kProcesses = 1000;
constexpr int kShares = 10;
constexpr milliseconds kWait{2000};

v1::ProcessIdentity FirstOfContainer() {
  v1::ProcessIdentity process;
  process.set_host("node");
  process.set_boot_id("boot");
  process.set_pid(1);
  process.set_start_ticks(100);
  process.set_image(7);
  return process;
}

// How many of the processes come back in each tenth of the time, the first time
// and the second.
void ExpectSpread(
    const std::function<void(int, v1::ProcessIdentity*)>& change) {
  std::vector<int> first(kShares), second(kShares);
  for (int i = 0; i < kProcesses; ++i) {
    v1::ProcessIdentity process = FirstOfContainer();
    change(i, &process);
    Jitter jitter(process);
    for (std::vector<int>* shares : {&first, &second}) {
      const milliseconds wait = jitter.Of(kWait);
      ASSERT_GE(wait, kWait / 2);
      ASSERT_LE(wait, kWait);
      const auto share =
          (wait - kWait / 2) * kShares / (kWait / 2 + milliseconds(1));
      ++(*shares)[static_cast<size_t>(share)];
    }
  }
  for (const std::vector<int>& shares : {first, second}) {
    for (int count : shares) EXPECT_NEAR(count, kProcesses / kShares, 50);
  }
}

TEST(Jitter, ProcessesWithOnePidComeBackAtTimesOfTheirOwn) {
  ExpectSpread([](int i, auto* process) { process->set_image(8 + i); });
  ExpectSpread([](int i, auto* process) {
    process->set_host("pod-" + std::to_string(i));
  });
  ExpectSpread([](int i, auto* process) {
    process->set_boot_id("boot-" + std::to_string(i));
  });
  ExpectSpread([](int i, auto* process) { process->set_start_ticks(100 + i); });
}

TEST(Jitter, RanksOfOneHostComeBackAtTimesOfTheirOwn) {
  ExpectSpread([](int i, auto* process) { process->set_pid(2 + i); });
}

TEST(Jitter, EachWaitOfAProcessIsAnother) {
  Jitter jitter(FirstOfContainer());
  std::set<milliseconds> waits;
  for (int i = 0; i < 20; ++i) waits.insert(jitter.Of(kWait));
  EXPECT_GT(waits.size(), 15u);
  EXPECT_EQ(jitter.Of(milliseconds(0)), milliseconds(0));
}

}  // namespace
}  // namespace traincheck::agent
