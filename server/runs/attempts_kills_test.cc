// The daemon is killed again and again while two ranks of one start record:
// they stay in one attempt. An attempt is a part of what a violation is called
// by, so that a process that moved would have its violations twice.
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "server/runs/registry_for_testing.h"

namespace traincheck::server {
namespace {

constexpr char kStart[] = "00000000000000000000000000000aaa";

// What a rank's relay sends, one call after the other. A stream that broke, or
// that the daemon's end took along, is opened again before the next call.
class Relay {
 public:
  Relay(int rank, absl::Time began, bool imports_long, bool places_first)
      : rank_(rank), hello_(MakeHello(rank + 1)) {
    hello_.set_process_started_unix_ns(absl::ToUnixNanos(began));
    hello_.set_started_unix_ns(
        absl::ToUnixNanos(began + absl::Seconds(imports_long ? 30 : 1)));
    // The environment names the place before the group is there.
    if (places_first) calls_.emplace_back(Call::kPlace);
    calls_.emplace_back(Call::kGroup);
    for (int step = 0; step < 3; ++step) calls_.emplace_back(Call::kStep);
    calls_.emplace_back(Call::kEnd);
  }

  enum class Call { kPlace, kGroup, kStep, kEnd };

  int rank() const { return rank_; }
  const v1::Hello& hello() const { return hello_; }
  bool is_done() const { return next_ == calls_.size(); }
  Call Next() { return calls_[next_++]; }

  bool is_open = false;
  StreamId stream;

 private:
  const int rank_;
  v1::Hello hello_;
  std::vector<Call> calls_;
  size_t next_ = 0;
};

class Kills : public RegistryTest, public testing::WithParamInterface<int> {
 protected:
  bool Happens(double probability) {
    return std::bernoulli_distribution(probability)(random_);
  }

  void Send(Relay* relay) {
    if (!relay->is_open) {
      const auto opened = registry_->Open(relay->hello(), nullptr);
      ASSERT_TRUE(opened.ok()) << opened.status();
      relay->stream = opened->stream;
      relay->is_open = true;
    }
    switch (relay->Next()) {
      case Relay::Call::kPlace:
        return AddPlace(relay->stream, relay->rank(), 2);
      case Relay::Call::kGroup:
        return AddPlace(relay->stream, relay->rank(), 2, kStart);
      case Relay::Call::kStep:
        return AddStep(relay->stream, step_++);
      case Relay::Call::kEnd:
        relay->is_open = false;
        v1::Goodbye goodbye;
        goodbye.set_end(v1::END_KIND_CLEAN);
        // Of an older relay it is not known.
        if (Happens(0.7)) {
          goodbye.set_ended_unix_ns(relay->hello().process_started_unix_ns() +
                                    20'000'000'000);
        }
        ASSERT_TRUE(registry_->End(relay->stream, goodbye, nullptr).ok());
    }
  }

  // What it had in memory is gone, what it had stored is not.
  void Kill() {
    ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(10)).ok());
    registry_ = *Registry::Load(store_.get(), {.lost_after = absl::Seconds(600),
                                               .now = [this] { return now_; }});
  }

  void Disturb(std::vector<Relay>* relays) {
    if (Happens(0.3)) {
      Kill();
      for (Relay& relay : *relays) relay.is_open = false;
    }
    for (Relay& relay : *relays) {
      if (!relay.is_open || !Happens(0.1)) continue;
      registry_->Disconnect(relay.stream);
      relay.is_open = false;
    }
    // Once in a while for so long that silent ranks are counted as lost.
    if (Happens(0.3)) Pass(absl::Seconds(Happens(0.3) ? 601 : 5));
  }

  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
  uint64_t step_ = 0;
};

TEST_P(Kills, OfTheDaemonMoveNoRankOfAStart) {
  std::vector<Relay> relays;
  for (int rank : {0, 1}) {
    relays.emplace_back(rank, now_ - absl::Seconds(60), Happens(0.5),
                        Happens(0.5));
  }
  while (!relays[0].is_done() || !relays[1].is_done()) {
    Relay& relay = relays[Happens(0.5) ? 1 : 0];
    if (!relay.is_done()) Send(&relay);
    Disturb(&relays);
    const v1::Run run = Run();
    for (const v1::Process& process : run.processes()) {
      ASSERT_EQ(process.attempt(), 0u) << run.DebugString();
    }
  }
  EXPECT_EQ(Run().processes_size(), 2);
  EXPECT_EQ(Run().attempts(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Kills, testing::Range(0, 40));

}  // namespace
}  // namespace traincheck::server
