// A checker whose batches come in any order, which lets go of processes that
// have ended, and which is saved, thrown away and restored at any time, finds
// what an undisturbed one finds: over random runs
// (invariants/testing/random_run.h).
//
// TRAINCHECK_SEEDS is how many runs are drawn, TRAINCHECK_SEED the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "base/seed_for_testing.h"
#include "invariants/testing/deferred_states.h"
#include "invariants/testing/random_run.h"
#include "tests/engine/engine_harness.h"

namespace traincheck {
namespace {

constexpr uint64_t kFirstSeed = 20240607;
constexpr uint64_t kSeeds = 300;

const InvariantSet& Rules() {
  static const auto* const kRules = [] {
    auto* set = new InvariantSet;
    set->name = "rules";
    set->invariants = Learn(TwoReferences()).invariants;
    return set;
  }();
  return *kRules;
}

// "cnn": rules that were learned from it alone apply too.
constexpr char kExperiment[] = "cnn";

class Checking {
 public:
  explicit Checking(const RandomRun& run,
                    EndedProcesses ended = EndedProcesses::kLetGo)
      : run_(run),
        of_ended_(ended),
        next_(run.processes.size()),
        ended_(run.processes.size()) {
    checker_ = NewChecker();
  }

  bool HasMore(size_t process) const { return !ended_[process]; }

  // The next batch, or the end.
  void Feed(size_t process) {
    const RandomProcess& from = run_.processes[process];
    const auto number = static_cast<uint32_t>(process);
    if (next_[process] < from.batches.size()) {
      checker_->Consume(number, from.batches[next_[process]++]);
    } else {
      checker_->EndProcess(number, from.end);
      ended_[process] = true;
    }
    Take();
  }

  void GiveUpAbsent() {
    for (const auto& [attempt, rank] : run_.absent) {
      checker_->GiveUpRank(attempt, rank, "never announced itself");
    }
    Take();
  }

  // As a daemon that dies here and starts again.
  void Restart() {
    const std::string state = checker_->Save();
    checker_ = NewChecker();
    const absl::Status restored = checker_->RestoreUntrusted(state);
    ASSERT_TRUE(restored.ok()) << restored;
    ASSERT_EQ(checker_->Save(), state);
  }

  std::string State() const { return checker_->Save(); }

  // Ids of rules.
  std::set<std::string> ViolatedRules() const {
    std::set<std::string> rules;
    for (const auto& [id, violation] : checked_.violations) {
      rules.insert(violation.invariant_id);
    }
    return rules;
  }

  std::string End() {
    checker_->EndRun();
    Take();
    checked_.summary = checker_->Summary();
    std::string text = Print(checked_);
    for (const InvariantVerdict& verdict : checker_->Verdicts()) {
      text += verdict.invariant->id + " " +
              std::to_string(verdict.windows.decided) + " " +
              std::to_string(verdict.windows.unknown) + " " + verdict.reason +
              (verdict.no_occasion ? " no occasion\n" : "\n");
    }
    for (const std::string& name : checked_.summary.unchecked_processes) {
      text += "unchecked " + name + "\n";
    }
    return text;
  }

 private:
  std::unique_ptr<Checker> NewChecker() const {
    return std::make_unique<Checker>("run", kExperiment, Rules(), of_ended_);
  }
  void Take() {
    for (Violation& violation : checker_->TakeChanges()) {
      checked_.violations[violation.id] = std::move(violation);
    }
  }

  const RandomRun& run_;
  const EndedProcesses of_ended_;
  std::vector<size_t> next_;
  std::vector<bool> ended_;
  std::unique_ptr<Checker> checker_;
  Checked checked_;
};

// Process after process.
void FeedAll(const RandomRun& run, Checking* checking) {
  for (size_t process = 0; process < run.processes.size(); ++process) {
    while (checking->HasMore(process)) checking->Feed(process);
  }
  checking->GiveUpAbsent();
}

// Nor is anything forgotten.
std::string Undisturbed(const RandomRun& run) {
  Checking checking(run, EndedProcesses::kKept);
  FeedAll(run, &checking);
  return checking.End();
}

std::set<std::string> ViolatedRules(const RandomRun& run) {
  Checking checking(run);
  FeedAll(run, &checking);
  checking.End();
  return checking.ViolatedRules();
}

// `restarts`: one after so many batches, in the mean.
std::string Disturbed(const RandomRun& run, uint64_t restarts, uint64_t seed) {
  std::mt19937_64 random(seed);
  Checking checking(run);
  std::vector<size_t> left(run.processes.size());
  for (size_t i = 0; i < left.size(); ++i) left[i] = i;
  bool given_up = false;
  while (!left.empty()) {
    if (!given_up && random() % 20 == 0) {
      checking.GiveUpAbsent();
      given_up = true;
    }
    // Some processes are far behind the others.
    const size_t most = random() % 4 == 0 ? left.size() : 1;
    const size_t at = random() % most;
    checking.Feed(left[at]);
    if (!checking.HasMore(left[at])) {
      left.erase(left.begin() + static_cast<ptrdiff_t>(at));
    } else if (random() % 16 == 0) {
      std::shuffle(left.begin(), left.end(), random);
    }
    if (random() % restarts == 0) checking.Restart();
    if (testing::Test::HasFatalFailure()) return "";
  }
  if (!given_up) checking.GiveUpAbsent();
  return checking.End();
}

TEST(Recovery, AnyOrderAndAnyRestartGiveTheSame) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  const uint64_t seeds = SeedsForTesting(kSeeds);
  size_t violated = 0;
  size_t unknown = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    const std::string expected = Undisturbed(run);
    ASSERT_EQ(Disturbed(run, 10, seed), expected);
    violated += expected.find("steps ") != std::string::npos;
    unknown += expected.find("unknown ") != std::string::npos;
  }
  std::cout << seeds << " runs from seed " << first << ", " << violated
            << " with violations, " << unknown << " with unknown rules\n";
  // The runs are such that there is something to lose.
  EXPECT_GT(violated * 4, seeds);
  EXPECT_GT(unknown * 4, seeds);
}

// What a snapshot forgets is missed at some batch.
TEST(Recovery, ARestartAfterEveryBatchChangesNothing) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  for (uint64_t seed = first; seed < first + 25; ++seed) {
    const RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    ASSERT_EQ(Disturbed(run, 1, seed), Undisturbed(run));
  }
}

// Nothing that a snapshot forgets comes into the state later either.
TEST(Recovery, ARestoredStateGrowsAsTheOther) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  for (uint64_t seed = first; seed < first + 25; ++seed) {
    const RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    Checking whole(run);
    Checking restored(run);
    for (size_t process = 0; process < run.processes.size(); ++process) {
      while (whole.HasMore(process)) {
        whole.Feed(process);
        restored.Feed(process);
        restored.Restart();
        ASSERT_EQ(whole.State(), restored.State());
      }
    }
  }
}

// Batches that are cut otherwise tell the same story. Not where records are
// missing: from there on the agent's marks tell of steps, and one that comes in
// the next batch comes too late for the call at which its step closed.
TEST(Recovery, OtherBatchesGiveTheSame) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  for (uint64_t seed = first; seed < first + 50; ++seed) {
    RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    const std::string expected = Undisturbed(run);
    std::mt19937_64 random(seed);
    for (RandomProcess& process : run.processes) {
      if (process.hole) continue;
      process.batches = Split(process.batches, &random);
    }
    ASSERT_EQ(Undisturbed(run), expected);
  }
}

RandomRun WithDeferredStates(const RandomRun& run, const DeferOptions& options,
                             uint64_t seed) {
  std::mt19937_64 random(seed);
  RandomRun deferred = run;
  for (RandomProcess& process : deferred.processes) {
    process.batches = DeferStates(process.batches, options, &random);
  }
  return deferred;
}

// Digests that come behind their states give what immediate ones give: with
// holes in the records, kills of ranks, and restarts while some are awaited.
TEST(Recovery, DeferredDigestsGiveTheSame) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  const uint64_t seeds = SeedsForTesting(kSeeds) / 3;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    const DeferOptions options = {
        .percent_deferred = seed % 2 == 0 ? 100u : 60u,
        .max_lag = static_cast<uint32_t>(seed % 7)};
    const RandomRun deferred = WithDeferredStates(run, options, seed);
    ASSERT_EQ(Disturbed(deferred, 5, seed), Undisturbed(run));
  }
}

// Digests that never come leave rules undecided and accuse nobody.
TEST(Recovery, LostDigestsAreUnknown) {
  const uint64_t first = SeedForTesting(kFirstSeed);
  size_t fewer = 0;
  for (uint64_t seed = first; seed < first + 50; ++seed) {
    const RandomRun run = DrawRun(seed);
    SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed) + ": " + run.about);
    const DeferOptions options = {.percent_lost = 30, .max_lag = 2};
    const std::set<std::string> all = ViolatedRules(run);
    const std::set<std::string> some =
        ViolatedRules(WithDeferredStates(run, options, seed));
    EXPECT_TRUE(
        std::includes(all.begin(), all.end(), some.begin(), some.end()));
    fewer += some.size() < all.size();
  }
  EXPECT_GT(fewer, 0u);
}

// Bytes that pass the hash and are wrong all the same, as a mistake in a
// version number would make them.
TEST(Recovery, UntrustedStatesAreRefusedOrGoneOnWith) {
  const RandomRun run = DrawRun(7);
  Checker checker("run", kExperiment, Rules());
  const std::vector<StoredBatch>& batches = run.processes[0].batches;
  for (size_t i = 0; i < batches.size() / 2; ++i) {
    checker.Consume(0, batches[i]);
  }
  const std::string sealed = checker.Save();
  std::mt19937_64 random(1);
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string spoilt = sealed;
    spoilt[random() % spoilt.size()] ^= static_cast<char>(1 + random() % 255);
    Checker other("run", kExperiment, Rules());
    refused += !other.RestoreUntrusted(spoilt).ok();
  }
  EXPECT_EQ(refused, 1000);
  for (size_t size = 0; size < sealed.size(); size += 1 + random() % 50) {
    Checker other("run", kExperiment, Rules());
    EXPECT_FALSE(other.RestoreUntrusted(sealed.substr(0, size)).ok());
  }
}

TEST(Recovery, AStateOfAnotherCheckIsRefused) {
  Checker checker("run", kExperiment, Rules());
  const std::string state = checker.Save();
  EXPECT_TRUE(
      Checker("run", kExperiment, Rules()).RestoreUntrusted(state).ok());
  EXPECT_FALSE(
      Checker("run-2", kExperiment, Rules()).RestoreUntrusted(state).ok());
  EXPECT_FALSE(Checker("run", "mlp", Rules()).RestoreUntrusted(state).ok());
  InvariantSet newer = Rules();
  ++newer.version;
  EXPECT_FALSE(Checker("run", kExperiment, newer).RestoreUntrusted(state).ok());
  InvariantSet smaller = Rules();
  smaller.invariants.pop_back();
  EXPECT_FALSE(
      Checker("run", kExperiment, smaller).RestoreUntrusted(state).ok());
}

}  // namespace
}  // namespace traincheck
