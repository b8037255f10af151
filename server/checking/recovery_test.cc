// A run whose batches come late, twice and in any order between its processes,
// whose relays disconnect and are given up, whose daemon stops and dies at any
// time, whose set comes late: the violations, the verdicts and what watchers
// are told are those of an undisturbed check. Over random runs, with the real
// store.
//
// TRAINCHECK_SEEDS is how many runs are drawn, TRAINCHECK_SEED the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/seed_for_testing.h"
#include "inference/inference.h"
#include "invariants/testing/random_run.h"
#include "invariants/testing/synthetic_training.h"
#include "server/checking/check_summary.h"
#include "server/checking/live_checks.h"
#include "server/checking/mortal_store_for_testing.h"
#include "server/checking/violation_message.h"
#include "server/ingest/batch_decoder.h"
#include "server/ingest/test_batches.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

constexpr uint64_t kFirstSeed = 20240607;
constexpr uint64_t kSeeds = 40;
constexpr char kRun[] = "run";
constexpr char kExperiment[] = "cnn";

void LearnFrom(const std::string& run, const std::string& experiment,
               const TrainingOptions& options, Inference* inference) {
  inference->BeginRun({run, experiment, ""});
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    const auto process = static_cast<uint32_t>(rank);
    for (const StoredBatch& batch : TrainRank(options, rank)) {
      inference->Consume(process, batch);
    }
    inference->EndProcess(process, ProcessEnd::kClean);
  }
  inference->EndRun();
}

const InvariantSet& Rules() {
  static const auto* const kRules = [] {
    Inference inference({});
    TrainingOptions cnn;
    LearnFrom("run-1", kExperiment, cnn, &inference);
    TrainingOptions mlp;
    mlp.model = "Mlp";
    mlp.layer = "torch.nn.modules.linear.Linear";
    mlp.optimizer = "torch.optim.sgd.SGD";
    mlp.loader = false;
    mlp.seed = 2;
    LearnFrom("run-2", "mlp", mlp, &inference);
    auto* set = new InvariantSet;
    set->name = "rules";
    set->invariants = inference.Finish(nullptr).invariants;
    return set;
  }();
  return *kRules;
}

// Violations without what depends on the time of day, and verdicts.
struct Found {
  std::map<std::string, std::string> violations;  // by id
  std::string summary;
};

std::string Text(v1::Violation violation) {
  violation.clear_revision();
  violation.clear_first_seen_unix_ns();
  return violation.DebugString();
}

std::string Text(const v1::CheckProgress& check) {
  std::string text = absl::StrCat(check.total(), " rules, ", check.decided(),
                                  " decided, ", check.violated(), " violated");
  for (const v1::UnknownReason& unknown : check.unknown()) {
    absl::StrAppend(&text, "\n", unknown.invariants(),
                    " unknown: ", unknown.reason());
  }
  for (const v1::UnknownReason& unknown : check.partly_unknown()) {
    absl::StrAppend(&text, "\n", unknown.invariants(),
                    " partly unknown: ", unknown.reason());
  }
  return text;
}

v1::Batch ToApi(const StoredBatch& batch) {
  v1::Batch api;
  api.set_number(batch.number);
  for (const RingSlice& slice : batch.slices) {
    v1::Slice* added = api.add_slices();
    added->set_ring(slice.ring);
    added->set_from(slice.from);
    added->set_to(slice.to);
    added->set_records(slice.records);
  }
  api.set_plain_bytes(batch.plain.size());
  api.set_payload(Compress(batch.plain));
  return api;
}

// Attempts and ranks that never connect or die before they say who they are.
std::set<std::pair<uint32_t, int32_t>> Unannounced(const RandomRun& run) {
  std::set<std::pair<uint32_t, int32_t>> ranks(run.absent.begin(),
                                               run.absent.end());
  for (const RandomProcess& process : run.processes) {
    const bool announced = std::any_of(
        process.batches.begin(), process.batches.end(),
        [](const StoredBatch& batch) {
          return DecodeBatchUntrusted(ToApi(batch))->place.has_value();
        });
    if (!announced) ranks.insert({process.attempt, process.rank});
  }
  return ranks;
}

Found Undisturbed(const RandomRun& run, const InvariantSet& rules) {
  Checker checker(kRun, kExperiment, rules);
  for (size_t i = 0; i < run.processes.size(); ++i) {
    const auto process = static_cast<uint32_t>(i);
    for (const StoredBatch& batch : run.processes[i].batches) {
      checker.Consume(process, batch);
    }
    checker.EndProcess(process, run.processes[i].end);
  }
  for (const auto& [attempt, rank] : Unannounced(run)) {
    checker.GiveUpRank(attempt, rank, "never announced itself");
  }
  checker.EndRun();
  Found found;
  for (const Violation& violation : checker.Violations()) {
    found.violations[violation.id] = Text(server::ToApi(violation));
  }
  found.summary = Text(server::ToApi(Summarise(checker.Summary())));
  return found;
}

// The parts of a daemon that keep and check runs.
class TestDaemon {
 public:
  TestDaemon(const std::string& dir, absl::Duration snapshot_every)
      : dir_(dir), snapshot_every_(snapshot_every) {
    Start();
  }
  ~TestDaemon() { Stop(); }

  Registry& registry() { return *registry_; }
  ViolationBoard& board() { return *board_; }
  LiveChecks& checks() { return *checks_; }
  SetCatalog& sets() { return *sets_; }
  void Pass(absl::Duration time) {
    now_ += time;
    registry_->Tick();
  }
  // Waits for all that was written up to here.
  void Sync() {
    WriteSet writes;
    writes.Put(Table::kMeta, "test", "");
    ASSERT_TRUE(store_->WriteAndWait(std::move(writes), absl::Minutes(1)).ok());
  }
  void Restart(bool kill) {
    if (kill) store_->Kill();
    Stop();
    Start();
  }

 private:
  void Start() {
    store_ = std::make_unique<MortalStore>(*OpenRocksdbStore(dir_));
    registry_ = *Registry::Load(store_.get(), {.now = [this] { return now_; }});
    board_ = *ViolationBoard::Load(store_.get());
    sets_ = std::make_unique<SetCatalog>(store_.get());
    checks_ = std::make_unique<LiveChecks>(
        LiveChecks::Dependencies{.store = store_.get(),
                                 .registry = registry_.get(),
                                 .sets = sets_.get(),
                                 .board = board_.get(),
                                 .snapshot_every = snapshot_every_});
    registry_->SetObserver(
        [this](const std::string& run) { checks_->Wake(run); });
    sets_->SetObserver([this](const std::string& set) { checks_->OnSet(set); });
    checks_->Start();
  }
  void Stop() {
    checks_->Stop();
    store_->Close();
    checks_.reset();
    sets_.reset();
    store_.reset();
    board_.reset();
    registry_.reset();
  }

  const std::string dir_;
  const absl::Duration snapshot_every_;
  absl::Time now_ = absl::FromUnixSeconds(1000000);
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<MortalStore> store_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<LiveChecks> checks_;
};

// The relay of one process.
class TestRelay {
 public:
  TestRelay(const RandomProcess* process, uint32_t pid)
      : process_(*process), pid_(pid) {}

  bool connected() const { return stream_.has_value(); }
  bool sent_all() const { return next_ == process_.batches.size(); }

  // False: its place is taken by another process for now.
  bool Connect(Registry* registry) {
    v1::Hello hello = MakeHello(kRun, pid_);
    hello.set_experiment(kExperiment);
    hello.set_check_set("rules");
    hello.set_attempt(process_.attempt);
    hello.set_started_unix_ns(1);  // before any other ended
    hello.set_resumes(true);
    const auto opened = registry->Open(hello, nullptr);
    if (!opened.ok()) return false;
    stream_ = opened->stream;
    next_ = opened->next_batch;
    return true;
  }
  void Send(Registry* registry, uint64_t number) {
    const v1::Batch batch = ToApi(process_.batches[number]);
    ASSERT_TRUE(
        registry
            ->AddBatch(*stream_, batch, DecodeBatchUntrusted(batch), nullptr)
            .ok());
    next_ = std::max(next_, number + 1);
  }
  void SendNext(Registry* registry) { Send(registry, next_); }
  void SendAgain(Registry* registry, uint64_t draw) {
    if (next_ > 0) Send(registry, draw % next_);
  }
  void Disconnect(Registry* registry) {
    registry->Disconnect(*stream_);
    stream_.reset();
  }
  void Forget() { stream_.reset(); }
  // A process that was lost says nothing.
  void End(Registry* registry) {
    if (process_.end == ProcessEnd::kLost) return Disconnect(registry);
    v1::Goodbye goodbye;
    goodbye.set_end(process_.end == ProcessEnd::kClean ? v1::END_KIND_CLEAN
                                                       : v1::END_KIND_DIED);
    ASSERT_TRUE(registry->End(*stream_, goodbye, nullptr).ok());
    stream_.reset();
  }

 private:
  const RandomProcess& process_;
  const uint32_t pid_;
  std::optional<StreamId> stream_;
  uint64_t next_ = 0;
};

// Somebody who watches all the time: what is told goes on and never back.
class Watcher {
 public:
  void Look(const ViolationBoard& board) {
    const ViolationBoard::Changes changes = *board.ChangesAfter(seen_, kRun);
    seen_ = changes.revision;
    for (v1::Violation violation : changes.violations) {
      known_[violation.id()] = Text(violation);
      // Runs that seemed over go on: open, ended, open.
      violation.clear_status();
      History& history = histories_[violation.id()];
      const std::string text = Text(violation);
      if (text == history.now) continue;
      EXPECT_TRUE(history.states.insert(text).second) << "told twice: " << text;
      history.now = text;
    }
  }
  // By id, as told last.
  const std::map<std::string, std::string>& known() const { return known_; }

 private:
  struct History {
    std::string now;
    std::set<std::string> states;
    std::string told;  // for people
  };
  uint64_t seen_ = 0;
  std::map<std::string, std::string> known_;
  std::map<std::string, History> histories_;
};

class Disturbance {
 public:
  Disturbance(const RandomRun& run, uint64_t seed, const std::string& dir)
      : run_(run),
        random_(seed),
        daemon_(dir, OneIn(2) ? absl::ZeroDuration() : absl::Milliseconds(3)) {
    for (size_t i = 0; i < run.processes.size(); ++i) {
      relays_.emplace_back(&run.processes[i], 100 + static_cast<uint32_t>(i));
    }
  }

  Found Run() {
    if (OneIn(2)) SaveSet();
    // Processes get their numbers in the order in which they connect.
    for (TestRelay& relay : relays_) {
      EXPECT_TRUE(relay.Connect(&daemon_.registry()));
    }
    daemon_.Sync();
    while (!AllSent()) {
      Act();
      if (testing::Test::HasFailure()) return {};
    }
    if (OneIn(2)) SaveSet();
    EndAll();
    SaveSet();
    return Read();
  }

 private:
  bool OneIn(uint64_t n) { return random_() % n == 0; }
  bool AllSent() const {
    return std::all_of(relays_.begin(), relays_.end(),
                       [](const TestRelay& relay) { return relay.sent_all(); });
  }

  // The run may begin, go on and end before there is one.
  void SaveSet() {
    if (std::exchange(set_saved_, true)) return;
    EXPECT_TRUE(daemon_.sets().Save(Rules()).ok());
  }

  void Act() {
    Registry* registry = &daemon_.registry();
    TestRelay& relay = relays_[random_() % relays_.size()];
    if (!relay.connected()) {
      relay.Connect(registry);
    } else if (OneIn(8)) {
      relay.SendAgain(registry, random_());
    } else if (OneIn(12)) {
      relay.Disconnect(registry);
    } else if (OneIn(20)) {
      relay.Connect(registry);  // a new stream, the old one still open
    } else if (!relay.sent_all()) {
      relay.SendNext(registry);
    } else if (OneIn(4)) {
      relay.End(registry);
    }
    if (OneIn(40)) SaveSet();
    if (OneIn(60)) daemon_.Pass(absl::Minutes(11));  // the silent are lost
    if (OneIn(25)) Restart();
    if (OneIn(6)) AwaitReading();
    watcher_.Look(daemon_.board());
  }

  void Restart() {
    daemon_.Restart(/*kill=*/!OneIn(3));
    for (TestRelay& relay : relays_) relay.Forget();
  }

  // Whatever was lost in between comes again, then every process ends as it
  // did.
  void EndAll() {
    for (TestRelay& relay : relays_) {
      ASSERT_TRUE(relay.connected() || relay.Connect(&daemon_.registry()));
      while (!relay.sent_all()) relay.SendNext(&daemon_.registry());
      relay.End(&daemon_.registry());
      if (OneIn(4)) AwaitReading();
    }
    daemon_.Pass(absl::Minutes(11));
  }

  void AwaitReading() {
    Await([](const v1::CheckProgress& progress) {
      return progress.caught_up() || progress.finished();
    });
  }
  v1::CheckProgress Await(bool (*reached)(const v1::CheckProgress&)) {
    const absl::Time deadline = absl::Now() + absl::Minutes(5);
    while (absl::Now() < deadline) {
      const auto progress = daemon_.checks().Progress(kRun);
      watcher_.Look(daemon_.board());
      if (progress.has_value() && reached(*progress)) return *progress;
      absl::SleepFor(absl::Microseconds(300));
    }
    ADD_FAILURE() << "gave up waiting for the check";
    return {};
  }

  Found Read() {
    // The run must be seen ended, or the check is finished too early.
    const absl::Time deadline = absl::Now() + absl::Minutes(5);
    while (!IsOver() && absl::Now() < deadline) {
      daemon_.Pass(absl::Seconds(1));
      absl::SleepFor(absl::Microseconds(300));
    }
    daemon_.checks().Wake(kRun);
    const v1::CheckProgress progress = Await(
        [](const v1::CheckProgress& progress) { return progress.finished(); });
    EXPECT_EQ(progress.error(), "");
    Found found;
    const auto all = daemon_.board().List(kRun);
    EXPECT_TRUE(all.ok()) << all.status();
    for (const v1::Violation& violation : all.value()) {
      found.violations[violation.id()] = Text(violation);
    }
    found.summary = Text(progress);
    AwaitTold(found);
    return found;
  }

  bool IsOver() {
    const RunView view = *daemon_.registry().View(kRun);
    for (size_t i = 0; i < view.processes.size(); ++i) {
      if (view.processes[i].end != run_.processes[i].end ||
          view.processes[i].next_batch != run_.processes[i].batches.size()) {
        return false;
      }
    }
    return view.ended;
  }

  // Watchers learn of what is durable.
  void AwaitTold(const Found& found) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    const auto told = [&] {
      for (const auto& [id, text] : found.violations) {
        const auto known = watcher_.known().find(id);
        if (known == watcher_.known().end() || known->second != text) {
          return false;
        }
      }
      return true;
    };
    while (!told() && absl::Now() < deadline) {
      watcher_.Look(daemon_.board());
      absl::SleepFor(absl::Microseconds(300));
    }
    EXPECT_TRUE(told());
  }

  const RandomRun& run_;
  std::mt19937_64 random_;
  TestDaemon daemon_;
  std::vector<TestRelay> relays_;
  Watcher watcher_;
  bool set_saved_ = false;
};

// True if there are violations.
bool CheckSeed(uint64_t seed) {
  InvariantSet rules = Rules();
  rules.version = 1;
  const RandomRun run = DrawRun(seed);
  SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
  const std::string dir = testing::TempDir() + "/recovery";
  std::filesystem::remove_all(dir);
  const Found expected = Undisturbed(run, rules);
  const Found found = Disturbance(run, seed, dir).Run();
  EXPECT_EQ(found.violations, expected.violations);
  EXPECT_EQ(found.summary, expected.summary);
  return !expected.violations.empty();
}

TEST(Recovery, WhateverHappensTheVerdictsAreThoseOfAnUndisturbedRun) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  const uint64_t seeds = SeedsForTesting(kSeeds);
  size_t violated = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    violated += CheckSeed(seed);
    if (HasFailure()) return;
  }
  std::cout << seeds << " runs from seed " << first << ", " << violated
            << " with violations\n";
}

// A rank that seemed lost came back: what the others had done without it was
// told, and told again from the beginning.
TEST(Recovery, WhatALostRankSaysLaterSetsNothingBack) {
  CheckSeed(747140508);
  CheckSeed(6000121);
}

}  // namespace
}  // namespace traincheck::server
