#include "agent/capture/process_identity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/capture/rank_sign.h"

namespace traincheck::agent {
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
  void Maps(uint32_t pid, const std::string& text) {
    files_[{pid, "maps"}] = text;
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
    system.folder = [this](uint32_t process) {
      const auto it = folders_.find(process);
      return it == folders_.end() ? "" : it->second;
    };
    system.exists = [this](const std::string& path) {
      return existing_.count(path) > 0;
    };
    return system;
  }
  void Folder(uint32_t pid, const std::string& path) { folders_[pid] = path; }
  void Exists(const std::string& path) { existing_.insert(path); }

 private:
  std::map<uint32_t, std::string> folders_;
  std::set<std::string> existing_;
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
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "77-elastic");
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
  EXPECT_EQ(ScriptOf({"python3", "-u", "train.py", "-m", "x"}).name,
            "train.py");
  EXPECT_EQ(ScriptOf({"python3", "-X", "dev", "-W", "error", "t.py"}).name,
            "t.py");
  EXPECT_EQ(ScriptOf({"python3", "-Xdev", "-uB", "t.py"}).name, "t.py");
  EXPECT_EQ(ScriptOf({"python3", "-m", "pkg.train", "a"}).name, "pkg.train");
  EXPECT_EQ(ScriptOf({"python3", "-um", "pkg.train"}).name, "pkg.train");
  EXPECT_EQ(ScriptOf({"python3", "-c", "import torch"}).name, "-c");
  EXPECT_EQ(ScriptOf({"python3"}).name, "");
  EXPECT_EQ(ScriptOf({"python3", "-"}).name, "");
}

TEST(ProcessIdentity, ModuleNamesTheExperiment) {
  FakeSystem system;
  system.Process(100, 1, 5000, {"python3", "-m", "pkg.train"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "pkg.train");
  system.Process(100, 1, 5000, {"python3", "-um", "pkg.train", "a/b.py"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "pkg.train");
  system.Process(100, 1, 5000, {"python3", "-c", "pass"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "python");
  // An option of the script's own.
  system.Process(100, 1, 5000, {"python3", "train.py", "-m", "resnet"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "train");
}

TEST(ProcessIdentity, AScriptOfARepositoryIsNamedByItsPathThere) {
  FakeSystem system;
  const auto experiment = [&](const std::string& script) {
    system.Process(100, 1, 5000, {"python3", script});
    return IdentifyProcess(system.Get(100)).experiment;
  };
  system.Folder(100, "/home/a/repo/examples");
  EXPECT_EQ(experiment("vision/train.py"), "train");
  system.Exists("/home/a/repo/.git");
  EXPECT_EQ(experiment("vision/train.py"), "examples/vision/train");
  EXPECT_EQ(experiment("../train.v2.py"), "train.v2");
  EXPECT_EQ(experiment("./train"), "examples/train");
  EXPECT_EQ(experiment("/home/a/repo/x/train.py"), "x/train");
  EXPECT_EQ(experiment("/home/a/other/train.py"), "train");
  // A repository within a repository is one of its own.
  system.Exists("/home/a/repo/examples/.git");
  EXPECT_EQ(experiment("vision/train.py"), "vision/train");
  // Somebody's folder that cannot be read.
  system.Folder(100, "");
  EXPECT_EQ(experiment("vision/train.py"), "train");
}

TEST(ProcessIdentity, ANotebookIsNamedByItsFile) {
  FakeSystem system;
  system.Process(100, 1, 5000,
                 {"python3", "-m", "ipykernel_launcher", "-f", "kernel.json"});
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "ipykernel_launcher");
  system.Exists("/home/a/repo/.git");
  system.Set("JPY_SESSION_NAME", "/home/a/repo/notes/Fit it.ipynb");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).experiment, "notes/Fit it");
}

TEST(ProcessIdentity, RealSystemKnowsThisProcess) {
  const ProcessIdentity identity = IdentifyProcess(System::Real());
  EXPECT_EQ(identity.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(identity.parent_pid, static_cast<uint32_t>(getppid()));
  EXPECT_GT(identity.start_ticks, 0u);
  EXPECT_FALSE(identity.host.empty());
  EXPECT_EQ(identity.boot_id.size(), 36u);
}

TEST(ProcessIdentity, RunIsProvisionalUntilSomethingNamesIt) {
  FakeSystem system;
  EXPECT_TRUE(IdentifyProcess(system.Get(100)).run_is_provisional);
  system.Set("PMIX_NAMESPACE", "prterun-node7-3@1");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "prterun-node7-3-1");
  EXPECT_FALSE(IdentifyProcess(system.Get(100)).run_is_provisional);
}

TEST(ProcessIdentity, TorchrunWithoutIdIsTheRunOnOneHost) {
  FakeSystem system;
  system.Process(50, 1, 4000, {"torchrun"});
  system.Process(100, 50, 5000, {"python3", "train.py"});
  system.Set("TORCHELASTIC_RUN_ID", "none");
  system.Set("WORLD_SIZE", "2");
  system.Set("LOCAL_WORLD_SIZE", "2");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "node7-50-4000");
  EXPECT_FALSE(IdentifyProcess(system.Get(100)).run_is_provisional);
  system.Set("LOCAL_WORLD_SIZE", "1");
  EXPECT_TRUE(IdentifyProcess(system.Get(100)).run_is_provisional);
}

TEST(ProcessIdentity, SlurmsVariants) {
  FakeSystem system;
  system.Set("SLURM_JOB_ID", "78");
  // Several trainings may follow one another in a batch script.
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "78-node7-100-5000");
  system.Set("SLURM_STEP_ID", "3");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "78.3");
  system.Set("SLURM_JOB_ID_HET_GROUP_0", "77");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "77.3");
  system.Set("SLURM_RESTART_COUNT", "2");
  system.Set("TORCHELASTIC_RESTART_COUNT", "1");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).attempt, 2001u);
}

TEST(ProcessIdentity, JobOfAPod) {
  FakeSystem system;
  system.Set("JOB_NAME", "nightly");  // a build server's
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "node7-100-5000");
  system.Set("KUBERNETES_SERVICE_HOST", "10.0.0.1");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "nightly");
  system.Set("JOB_UID", "0a1b");
  EXPECT_EQ(IdentifyProcess(system.Get(100)).run, "nightly-0a1b");
}

class BelowARank : public testing::Test {
 protected:
  BelowARank() {
    system_.Maps(100,
                 "7f00-7f01 r--s 0 00:01 9 /memfd:traincheck-ring\n"
                 "7f02-7f03 r--s 0 00:01 9 "
                 "/memfd:traincheck-rank:0/2:agreed (deleted)\n");
    system_.Process(101, 100, 5001, {"sh", "-c", "python3 eval.py"});
    system_.Process(102, 101, 5002, {"python3", "eval.py"});
  }
  FakeSystem system_;
};

TEST_F(BelowARank, SubprocessInheritsItsPlaceAndRun) {
  system_.Set("RANK", "0");
  system_.Set("WORLD_SIZE", "2");
  EXPECT_TRUE(InheritsRank(system_.Get(102)));
  const ProcessIdentity identity = IdentifyProcess(system_.Get(102));
  EXPECT_EQ(identity.run, "agreed");
  EXPECT_FALSE(identity.run_is_provisional);
  EXPECT_EQ(identity.owner_pid, 100u);
  EXPECT_EQ(identity.owner_ticks, 5000u);
}

TEST_F(BelowARank, ARankOfAnotherWorldIsItsOwn) {
  system_.Set("RANK", "0");
  system_.Set("WORLD_SIZE", "4");
  EXPECT_FALSE(InheritsRank(system_.Get(102)));
  EXPECT_EQ(IdentifyProcess(system_.Get(102)).owner_pid, 0u);
}

TEST_F(BelowARank, ATrainingWithoutRankIsItsOwn) {
  EXPECT_FALSE(InheritsRank(system_.Get(102)));
  EXPECT_EQ(IdentifyProcess(system_.Get(102)).run, "node7-102-5002");
}

TEST_F(BelowARank, SpawnedWorkerIsInTheRunThatTheRanksAgreedOn) {
  system_.Process(101, 100, 5001, {"python3", "--multiprocessing-fork"});
  const ProcessIdentity identity = IdentifyProcess(system_.Get(101));
  EXPECT_EQ(identity.run, "agreed");
  EXPECT_EQ(identity.owner_pid, 100u);
}

TEST(RankSign, IsSeenInMaps) {
  PutUpRankSign("1/4", "first");
  PutUpRankSign("2/4", "second");
  System system = System::Real();
  const std::string maps = system.proc_file(system.pid, "maps");
  EXPECT_EQ(maps.find("traincheck-rank:1/4:first"), std::string::npos);
  EXPECT_NE(maps.find("traincheck-rank:2/4:second"), std::string::npos);
}

}  // namespace
}  // namespace traincheck::agent
