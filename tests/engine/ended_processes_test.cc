// What a check keeps of processes that have ended: little, and all that is
// asked for.
//
// This program's operator new counts what is allocated.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "checker/checker.h"
#include "invariants/library/library.h"
#include "tests/engine/engine_harness.h"

namespace traincheck {
namespace {

// Bytes that are allocated, with what the allocator takes for them: by all
// threads, since learning has several.
std::atomic<size_t> allocated{0};

size_t SizeOf(void* memory) {
  return memory == nullptr ? 0 : malloc_usable_size(memory) + sizeof(size_t);
}

}  // namespace
}  // namespace traincheck

void* operator new(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  traincheck::allocated += traincheck::SizeOf(memory);
  return memory;
}
void operator delete(void* memory) noexcept {
  traincheck::allocated -= traincheck::SizeOf(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace traincheck {
namespace {

constexpr char kExperiment[] = "cnn";

// Built-in rules, and learned ones that are not among them.
const InvariantSet& Rules() {
  static const auto* const kRules = [] {
    auto* set = new InvariantSet(*BuiltInRules());
    std::set<std::string> ids;
    for (const Invariant& rule : set->invariants) ids.insert(rule.id);
    for (const Invariant& rule : Learned().invariants) {
      if (ids.insert(rule.id).second) set->invariants.push_back(rule);
    }
    return set;
  }();
  return *kRules;
}

std::unique_ptr<Checker> NewChecker(
    EndedProcesses ended = EndedProcesses::kLetGo) {
  return std::make_unique<Checker>("run", kExperiment, Rules(), ended);
}

// A job that begins anew under one run id.
struct Job {
  int32_t ranks = 2;
  int steps = 6;

  uint32_t NumberOf(uint32_t start, int32_t rank) const {
    return start * static_cast<uint32_t>(ranks) + static_cast<uint32_t>(rank);
  }
  TrainingOptions Training(uint32_t start) const {
    TrainingOptions options;
    options.ranks = ranks;
    options.steps = steps;
    options.attempt = start;
    options.seed = start + 1;
    // Another violation in each start would be kept with reason.
    if (start == 0) options.fault = TrainingFault::kNoSyncOnOneRank;
    return options;
  }
};

void Feed(const Job& job, uint32_t start, int32_t rank, Checker* checker) {
  const uint32_t process = job.NumberOf(start, rank);
  checker->SetAttempt(process, start);
  for (const StoredBatch& batch : TrainRank(job.Training(start), rank)) {
    checker->Consume(process, batch);
  }
}

// Rank after rank; all have begun before the first of them ends.
void RunStart(const Job& job, uint32_t start, Checker* checker) {
  for (int32_t rank = 0; rank < job.ranks; ++rank) {
    Feed(job, start, rank, checker);
  }
  for (int32_t rank = 0; rank < job.ranks; ++rank) {
    const bool in_order = (start + static_cast<uint32_t>(rank)) % 3 != 0;
    checker->EndProcess(job.NumberOf(start, rank),
                        in_order ? ProcessEnd::kClean : ProcessEnd::kDied);
  }
  checker->TakeChanges();
}

// What a start leaves behind, by process.
struct Left {
  double bytes = 0;
  double saved_bytes = 0;  // in a snapshot
};

Left LeftByAProcess(EndedProcesses ended) {
  constexpr uint32_t kStarts = 10;
  constexpr uint32_t kWarmUp = 2;
  const Job job{.ranks = 32};
  const std::unique_ptr<Checker> checker = NewChecker(ended);
  for (uint32_t start = 0; start < kWarmUp; ++start) {
    RunStart(job, start, checker.get());
  }
  const size_t allocated_before = allocated;
  const size_t saved_before = checker->Save().size();
  for (uint32_t start = kWarmUp; start < kStarts; ++start) {
    RunStart(job, start, checker.get());
  }
  const double processes = (kStarts - kWarmUp) * job.ranks;
  return {
      static_cast<double>(allocated - allocated_before) / processes,
      static_cast<double>(checker->Save().size() - saved_before) / processes};
}

TEST(EndedProcesses, LeaveLittleBehind) {
  const Left left = LeftByAProcess(EndedProcesses::kLetGo);
  const Left kept = LeftByAProcess(EndedProcesses::kKept);
  std::cout << "a process leaves " << left.bytes << " bytes, "
            << left.saved_bytes << " in a snapshot; if it is kept "
            << kept.bytes << " and " << kept.saved_bytes << "\n";
  EXPECT_LT(left.bytes, 1536);
  EXPECT_LT(left.saved_bytes, 256);
  // There is something to let go.
  EXPECT_GT(kept.bytes, 20'000);
}

// Everything that is found, as text.
std::string Found(const Checker& checker) {
  Checked checked;
  for (const Violation& violation : checker.Violations()) {
    checked.violations[violation.id] = violation;
  }
  checked.summary = checker.Summary();
  std::string text = Print(checked);
  for (const auto& [id, violation] : checked.violations) {
    text += id + " " + violation.headline + " of " +
            violation.grouped.incident + "\n";
  }
  for (const InvariantVerdict& verdict : checker.Verdicts()) {
    text += verdict.invariant->id + " " +
            std::to_string(static_cast<int>(verdict.outcome)) + " " +
            std::to_string(verdict.windows.decided) + " " +
            std::to_string(verdict.windows.unknown) + " " + verdict.reason +
            (verdict.no_occasion ? " no occasion\n" : "\n");
  }
  for (const std::string& process : checked.summary.unchecked_processes) {
    text += "unchecked " + process + "\n";
  }
  return text;
}

void Restart(std::unique_ptr<Checker>* checker) {
  const std::string state = (*checker)->Save();
  *checker = NewChecker();
  const absl::Status restored = (*checker)->RestoreUntrusted(state);
  ASSERT_TRUE(restored.ok()) << restored;
  ASSERT_EQ((*checker)->Save(), state);
}

TEST(EndedProcesses, AreJudgedAsIfAllWereKept) {
  const Job job;
  const std::unique_ptr<Checker> kept = NewChecker(EndedProcesses::kKept);
  std::unique_ptr<Checker> let_go = NewChecker();
  for (uint32_t start = 0; start < 4; ++start) {
    RunStart(job, start, kept.get());
    RunStart(job, start, let_go.get());
    EXPECT_EQ(Found(*let_go), Found(*kept));
    ASSERT_NO_FATAL_FAILURE(Restart(&let_go));
    EXPECT_EQ(Found(*let_go), Found(*kept));
  }
  EXPECT_FALSE(kept->Violations().empty());
}

// The records of a rank of the first start come when the second one has ended:
// its spool was delivered late.
TEST(EndedProcesses, RecordsOfAnEarlierStartThatComeLateAreJudged) {
  const Job job;
  const auto feed = [&](std::unique_ptr<Checker>* checker, bool restarts) {
    Feed(job, 0, 0, checker->get());
    (*checker)->EndProcess(job.NumberOf(0, 0), ProcessEnd::kClean);
    RunStart(job, 1, checker->get());
    const std::string early = Found(**checker);
    if (restarts) Restart(checker);
    Feed(job, 0, 1, checker->get());
    (*checker)->EndProcess(job.NumberOf(0, 1), ProcessEnd::kClean);
    // The error of the first start shows between its ranks.
    EXPECT_NE(Found(**checker), early);
    (*checker)->EndRun();
    return Found(**checker);
  };
  std::unique_ptr<Checker> in_order = NewChecker(EndedProcesses::kKept);
  for (int32_t rank = 0; rank < job.ranks; ++rank) {
    Feed(job, 0, rank, in_order.get());
    in_order->EndProcess(job.NumberOf(0, rank), ProcessEnd::kClean);
  }
  RunStart(job, 1, in_order.get());
  in_order->EndRun();
  std::unique_ptr<Checker> let_go = NewChecker();
  std::unique_ptr<Checker> restarted = NewChecker();
  EXPECT_EQ(feed(&let_go, /*restarts=*/false), Found(*in_order));
  EXPECT_EQ(feed(&restarted, /*restarts=*/true), Found(*in_order));
  EXPECT_NE(Found(*in_order).find("\n  steps "), std::string::npos);
}

TEST(EndedProcesses, AnswerWhatIsAskedOfThem) {
  const Job job;
  std::unique_ptr<Checker> checker = NewChecker();
  for (int32_t rank = 0; rank < job.ranks; ++rank) {
    Feed(job, 0, rank, checker.get());
  }
  const uint64_t step = checker->StepOf(1);
  EXPECT_GE(step, 5u);
  const SharedRanks ranks = checker->GroupRanksOf(1);
  EXPECT_EQ(*ranks, (std::vector<int32_t>{0, 1}));
  checker->EndProcess(1, ProcessEnd::kDied);
  EXPECT_EQ(checker->StepOf(1), step);
  // One list with those who go on.
  EXPECT_EQ(checker->GroupRanksOf(1), checker->GroupRanksOf(0));
  ASSERT_NO_FATAL_FAILURE(Restart(&checker));
  EXPECT_EQ(checker->StepOf(1), step);
  EXPECT_EQ(*checker->GroupRanksOf(1), *ranks);
  EXPECT_EQ(checker->GroupRanksOf(1), checker->GroupRanksOf(0));
  // What is said of it all the same is not looked at.
  const std::string state = checker->Save();
  Feed(job, 0, 1, checker.get());
  checker->EndProcess(1, ProcessEnd::kClean);
  EXPECT_EQ(checker->Save(), state);
}

}  // namespace
}  // namespace traincheck
