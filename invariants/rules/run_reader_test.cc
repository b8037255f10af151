#include "invariants/rules/run_reader.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "invariants/testing/synthetic_training.h"

namespace traincheck {
namespace {

// Counts the observers that there are.
class Counting : public RunObserver {
 public:
  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return std::make_unique<Observer>(&there_are_);
  }
  void EndRun() override {}

  int there_are() const { return there_are_; }

 private:
  class Observer : public ProcessObserver {
   public:
    explicit Observer(int* there_are) : there_are_(*there_are) { ++there_are_; }
    ~Observer() override { --there_are_; }

   private:
    int& there_are_;
  };

  int there_are_ = 0;
};

class RunReaderTest : public testing::Test {
 protected:
  void Train(uint32_t process, uint32_t attempt, int32_t rank) {
    TrainingOptions options;
    options.attempt = attempt;
    for (const StoredBatch& batch : TrainRank(options, rank)) {
      reader_.Consume(process, batch);
    }
  }
  void End(uint32_t process) {
    reader_.EndProcess(process, ProcessEnd::kClean);
    reader_.LetGo(process);
  }
  std::string NewestTrainings() const {
    std::string names;
    for (const ProcessBrief& process : reader_.NewestTrainings()) {
      names += process.Name() + (process.sight ? " seen; " : "; ");
    }
    return names;
  }
  std::string State() {
    Archive archive;
    reader_.Fields(archive);
    return archive.TakeBytes();
  }

  Counting observer_;
  RunReader reader_{{&observer_}};
};

TEST_F(RunReaderTest, LetsGoOfProcesses) {
  Train(0, 0, 0);
  Train(1, 0, 1);
  EXPECT_EQ(observer_.there_are(), 2);
  const uint64_t step = reader_.StepOf(0);
  EXPECT_GT(step, 0u);
  End(0);
  EXPECT_EQ(observer_.there_are(), 1);
  EXPECT_EQ(reader_.Find(0), nullptr);
  EXPECT_EQ(reader_.StepOf(0), step);
  EXPECT_EQ(NewestTrainings(), "rank 0 seen; rank 1 seen; ");
  // What is said of it all the same is not looked at.
  Train(0, 0, 0);
  End(0);
  EXPECT_EQ(observer_.there_are(), 1);
  EXPECT_EQ(reader_.StepOf(0), step);
}

TEST_F(RunReaderTest, KeepsWhoTrainedInTheNewestAttempt) {
  Train(0, 0, 0);
  End(0);
  Train(1, 1, 0);
  EXPECT_EQ(reader_.newest_attempt(), 1u);
  EXPECT_EQ(NewestTrainings(), "rank 0 seen; ");
  End(1);
  // Of an earlier attempt, and late.
  Train(2, 0, 1);
  End(2);
  EXPECT_EQ(observer_.there_are(), 0);
  EXPECT_EQ(reader_.newest_attempt(), 1u);
  EXPECT_EQ(NewestTrainings(), "rank 0 seen; ");
}

TEST_F(RunReaderTest, SavesLittleOfThem) {
  Train(0, 0, 0);
  Train(1, 0, 1);
  const size_t before = State().size();
  End(0);
  End(1);
  const std::string state = State();
  EXPECT_LT(state.size(), 512u);
  EXPECT_LT(state.size() * 4, before);

  Counting observer;
  RunReader restored({&observer});
  Archive archive(state);
  restored.Fields(archive);
  EXPECT_TRUE(archive.ok() && archive.at_end()) << archive.error();
  EXPECT_EQ(observer.there_are(), 0);
  EXPECT_EQ(restored.StepOf(1), reader_.StepOf(1));
  EXPECT_EQ(restored.NewestTrainings().size(), 2u);
  Archive again;
  restored.Fields(again);
  EXPECT_EQ(again.TakeBytes(), state);
}

}  // namespace
}  // namespace traincheck
