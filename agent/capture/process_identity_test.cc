#include "agent/capture/process_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace traincheck {
namespace {

// A host with a few processes, made up.
class FakeSystem {
 public:
  FakeSystem() { Process(100, 1, 5000, {"python3", "/home/a/train_gpt.py"}); }

  void Process(uint32_t pid, uint32_t parent, uint64_t ticks,
               const std::vector<std::string>& arguments) {
    std::string line;
    for (const std::string& argument : arguments) line += argument + '\0';
    files_[{pid, "cmdline"}] = line;
    std::string stat =
        std::to_string(pid) + " (py) (x y) S " + std::to_string(parent);
    for (int field = 5; field < 22; ++field) stat += " 0";
    files_[{pid, "stat"}] = stat + " " + std::to_string(ticks) + " 7 8";
  }
  void InitialEnvironment(uint32_t pid, const std::string& text) {
    files_[{pid, "environ"}] = text;
  }
  void Set(const std::string& name, const std::string& value) {
    environment_[name] = value;
  }
  System Get(uint32_t pid) const {
    System system;
    system.host = "node7";
    system.boot_id = "b-o-o-t";
    system.pid = pid;
    system.environment = [this](const char* name) {
      const auto it = environment_.find(name);
      return it == environment_.end() ? "" : it->second;
    };
    system.proc_file = [this](uint32_t process, const char* file) {
      const auto it = files_.find({process, file});
      return it == files_.end() ? "" : it->second;
    };
    return system;
  }

 private:
  std::map<std::string, std::string> environment_;
  std::map<std::pair<uint32_t, std::string>, std::string> files_;
};

TEST(ProcessIdentity, PlainScript) {
  FakeSystem system;
  const ProcessIdentity identity = IdentifyProcess(system.Get(100));
  EXPECT_EQ(identity.experiment, "train_gpt");
  EXPECT_EQ(identity.script, "/home/a/train_gpt.py");
  EXPECT_EQ(identity.run, "node7-100-5000");
  EXPECT_EQ(identity.start_ticks, 5000u);
  EXPECT_EQ(identity.parent_pid, 1u);
  EXPECT_EQ(identity.kind, ProcessKind::kOther);
  EXPECT_EQ(identity.role, RunRole::kTarget);
  EXPECT_EQ(identity.check_set, "");
}

TEST(ProcessIdentity, VariablesOfOursWin) {
  FakeSystem system;
  system.Set("TRAINCHECK_RUN", "run-1");
  system.Set("TRAINCHECK_EXPERIMENT", "gpt");
  system.Set("TRAINCHECK_COLLECT", "1");
  system.Set("TRAINCHECK_CHECK", "set-1");
  system.Set("TORCHELASTIC_RUN_ID", "elastic");
  system.Set("TORCHELASTIC_RESTART_COUNT", "2");
  const ProcessIdentity identity = IdentifyProcess(system.Get(100));
  EXPECT_EQ(identity.run, "run-1");
  EXPECT_EQ(identity.experiment, "gpt");
  EXPECT_EQ(identity.role, RunRole::kReference);
  EXPECT_EQ(identity.check_set, "set-1");
  EXPECT_EQ(identity.attempt, 2u);
}

TEST(ProcessIdentity, SchedulerThenLauncherNameTheRun) {
  FakeSystem system;
  system.Set("TORCHELASTIC_RUN_ID", "none");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "node7-100-5000");
  system.Set("TORCHELASTIC_RUN_ID", "elastic");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "elastic");
  system.Set("SLURM_JOB_ID", "77");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "77");
  system.Set("SLURM_STEP_ID", "0");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "77.0");
}

TEST(ProcessIdentity, RanksOfOneLauncherShareARun) {
  FakeSystem system;
  system.Process(50, 1, 4000, {"bash"});
  system.Process(101, 50, 5001, {"python3", "train.py"});
  system.Process(102, 50, 5002, {"python3", "train.py"});
  system.Set("WORLD_SIZE", "2");
  system.Set("MASTER_ADDR", "10.0.0.1");
  system.Set("MASTER_PORT", "29500");
  EXPECT_EQ(IdentifyProcess(system.Get(101)).run, "10.0.0.1-29500-4000");
  EXPECT_EQ(IdentifyProcess(system.Get(102)).run, "10.0.0.1-29500-4000");
}

TEST(ProcessIdentity, SpawnedProcessesBelongToTheirScript) {
  FakeSystem system;
  system.Process(101, 100, 5001,
                 {"python3", "-c", "from multiprocessing.spawn import",
                  "--multiprocessing-fork"});
  system.Process(102, 101, 5002,
                 {"python3", "-c", "x", "--multiprocessing-fork"});
  for (const uint32_t pid : {101u, 102u}) {
    const ProcessIdentity identity = IdentifyProcess(system.Get(pid));
    EXPECT_EQ(identity.experiment, "train_gpt");
    EXPECT_EQ(identity.run, "node7-100-5000");
    EXPECT_EQ(identity.pid, pid);
  }
}

TEST(ProcessIdentity, WorkerOfARankIsInItsRun) {
  FakeSystem system;
  system.InitialEnvironment(
      100, std::string("MASTER_ADDR=h\0MASTER_PORT=1\0WORLD_SIZE=4\0", 41));
  system.Process(101, 100, 5001, {"python3", "--multiprocessing-fork"});
  EXPECT_EQ(IdentifyProcess(system.Get(101)).run, "h-1-0");
}

TEST(ProcessIdentity, ForkedChildIsOwnedAndKeepsTheRun) {
  FakeSystem system;
  system.Process(101, 100, 5001, {"python3", "train.py"});
  ProcessIdentity parent = IdentifyProcess(system.Get(100));
  parent.kind = ProcessKind::kMain;
  const ProcessIdentity child = IdentifyForkedChild(system.Get(101), parent);
  EXPECT_EQ(child.run, parent.run);
  EXPECT_EQ(child.experiment, parent.experiment);
  EXPECT_EQ(child.kind, ProcessKind::kOther);
  EXPECT_EQ(child.owner_pid, 100u);
  EXPECT_EQ(child.owner_ticks, 5000u);
  EXPECT_EQ(child.start_ticks, 5001u);
}

TEST(ProcessIdentity, ScriptsAreFoundBehindPythonsOptions) {
  EXPECT_EQ(ScriptOf({"python3", "-u", "train.py", "-m", "x"}), "train.py");
  EXPECT_EQ(ScriptOf({"python3", "-X", "dev", "-W", "error", "t.py"}), "t.py");
  EXPECT_EQ(ScriptOf({"python3", "-Xdev", "-uB", "t.py"}), "t.py");
  EXPECT_EQ(ScriptOf({"python3", "-m", "pkg.train", "a"}), "pkg.train");
  EXPECT_EQ(ScriptOf({"python3", "-um", "pkg.train"}), "pkg.train");
  EXPECT_EQ(ScriptOf({"python3", "-c", "import torch"}), "-c");
  EXPECT_EQ(ScriptOf({"python3"}), "");
  EXPECT_EQ(ScriptOf({"python3", "-"}), "");
}

TEST(ProcessIdentity, ModuleNamesTheExperiment) {
  FakeSystem system;
  system.Process(100, 1, 5000, {"python3", "-m", "pkg.train"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "pkg.train");
  system.Process(100, 1, 5000, {"python3", "-c", "pass"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "python");
}

TEST(ProcessIdentity, RealSystemKnowsThisProcess) {
  const ProcessIdentity identity = IdentifyProcess(System::Real());
  EXPECT_EQ(identity.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(identity.parent_pid, static_cast<uint32_t>(getppid()));
  EXPECT_GT(identity.start_ticks, 0u);
  EXPECT_FALSE(identity.host.empty());
  EXPECT_EQ(identity.boot_id.size(), 36u);
}

}  // namespace
}  // namespace traincheck
