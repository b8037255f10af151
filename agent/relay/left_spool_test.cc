// Spool files that relays left: delivered by the next relay, or by hand.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "agent/relay/orphan_delivery.h"
#include "agent/relay/process_liveness.h"
#include "agent/relay/relay_fixture_for_testing.h"

namespace traincheck::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Json = nlohmann::json;

class LeftSpoolTest : public RelayFixture {
 protected:
  // Leaves a spool file of 1000 marks; returns the process.
  pid_t Leave() {
    server_.reset();
    StartRelay({{"TRAINCHECK_GRACE", "0"}});
    WriterProcess writer(relay_->socket_name());
    const pid_t pid = writer.pid();
    EXPECT_EQ(writer.Do("marks 1000"), "ok");
    EXPECT_EQ(writer.Do("drained 5000"), "yes");
    writer.End();
    ExpectExit(0);
    return pid;
  }

  // As if nothing had been written to the spool files for `age`.
  void Age(seconds age) {
    const std::time_t then = std::time(nullptr) - age.count();
    const utimbuf times = {then, then};
    for (const std::string& path : Spools()) {
      ASSERT_EQ(utime(path.c_str(), &times), 0);
    }
  }

  struct Sent {
    int code;
    std::vector<Json> files;
  };
  Sent SendSpool() { return AskFor("--send-spool", folder_ + "/spool"); }
  // `folder` "": none, so all in which this relay would spool.
  Sent AskFor(std::string flag, std::string folder) {
    const std::string out = folder_ + "/out";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::string relay = "agent/relay/traincheck-relay",
                server = "TRAINCHECK_SERVER=" + address_,
                temporary = "TMPDIR=" + folder_ + "/tmp",
                home = "HOME=" + folder_ + "/home";
    char* argv[] = {relay.data(), flag.data(),
                    folder.empty() ? nullptr : folder.data(), nullptr};
    char* envp[] = {server.data(), temporary.data(), home.data(), nullptr};
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, relay.c_str(), &actions, nullptr, argv, envp),
              0);
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    Sent sent = {WEXITSTATUS(status), {}};
    std::ifstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      sent.files.push_back(Json::parse(line, nullptr, false));
    }
    return sent;
  }

  // Without a folder that the setting names.
  Environment OnTheNode() {
    std::filesystem::create_directories(folder_ + "/tmp");
    return {{"TRAINCHECK_SPOOL_DIR", ""},
            {"TMPDIR", folder_ + "/tmp"},
            {"HOME", folder_ + "/home"}};
  }
  std::string OfUserIn(const std::string& folder) {
    return folder + "/traincheck-" + std::to_string(geteuid());
  }
  // Leaves a file, as if long ago, in a folder of earlier versions.
  pid_t LeaveIn(const std::filesystem::path& folder) {
    const pid_t pid = Leave();
    Age(seconds(700));
    std::filesystem::create_directories(folder);
    const std::filesystem::path file = Spools().at(0);
    std::filesystem::rename(file, folder / file.filename());
    return pid;
  }

  void ExpectDelivered(pid_t pid) {
    const StoredProcess stored = store_.Get(pid);
    EXPECT_TRUE(stored.faults.empty());
    EXPECT_TRUE(stored.missing.empty());
    ExpectMarks(stored.marks, 0, 1000);
    EXPECT_TRUE(stored.goodbye.has_value());
    EXPECT_TRUE(stored.hello.resumes());
  }
};

TEST_F(LeftSpoolTest, TheNextRelayDeliversItBesideItsOwnRecords) {
  const pid_t left = Leave();
  Age(seconds(700));  // it says that it comes from another host
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  ASSERT_TRUE(store_.WaitFor(
      left, [](const auto& p) { return p.goodbye.has_value(); }, seconds(10)));
  writer.Kill();
  ExpectExit(0);
  ExpectDelivered(left);
  ExpectComplete(pid, 10, v1::END_KIND_DIED);
  EXPECT_TRUE(Spools().empty());
}

TEST_F(LeftSpoolTest, AnotherStoreGetsAllDefinitions) {
  StartServer();
  StartRelay({{"TRAINCHECK_GRACE", "0"}});
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  ASSERT_TRUE(WaitForMarks(pid, 1000));
  server_.reset();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  writer.End();
  ExpectExit(0);
  Age(seconds(700));
  StoreForTesting other("other");
  server_ = std::make_unique<IngestForTesting>(&other, address_, Behaviour());
  EXPECT_EQ(SendSpool().code, 0);
  const StoredProcess stored = other.Get(pid);
  EXPECT_TRUE(stored.faults.empty());
  EXPECT_EQ(stored.missing.count(0), 0u);
  EXPECT_EQ(stored.positions.at(0), store_.Get(pid).positions.at(0));
  EXPECT_FALSE(stored.marks.empty());
  EXPECT_EQ(stored.marks.back(), 1999u);
  EXPECT_TRUE(stored.goodbye.has_value());
}

TEST_F(LeftSpoolTest, AFileWhoseProcessMayLiveIsLeftAlone) {
  const pid_t left = Leave();
  StartServer();
  const Sent sent = SendSpool();
  EXPECT_EQ(sent.code, 0);
  ASSERT_EQ(sent.files.size(), 1u);
  EXPECT_EQ(sent.files[0]["result"], "in_use") << sent.files[0];
  EXPECT_TRUE(store_.Get(left).marks.empty());
  EXPECT_EQ(Spools().size(), 1u);
}

TEST_F(LeftSpoolTest, AFileThatARelayOwnsIsLeftAlone) {
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  const pid_t pid = writer.pid();
  Age(seconds(700));
  kill(relay_->pid(), SIGSTOP);
  StartServer();
  const Sent sent = SendSpool();
  EXPECT_EQ(sent.code, 0);
  ASSERT_EQ(sent.files.size(), 1u);
  EXPECT_EQ(sent.files[0]["result"], "in_use") << sent.files[0];
  kill(relay_->pid(), SIGCONT);
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, 1000, v1::END_KIND_DIED);
}

TEST_F(LeftSpoolTest, ByHandAllFilesAreDelivered) {
  const pid_t first = Leave();
  const pid_t second = Leave();
  Age(seconds(700));
  const Sent unreachable = SendSpool();
  EXPECT_EQ(unreachable.code, 4);
  EXPECT_EQ(Spools().size(), 2u);
  StartServer();
  const Sent sent = SendSpool();
  EXPECT_EQ(sent.code, 0);
  ASSERT_EQ(sent.files.size(), 2u);
  for (const Json& file : sent.files) {
    EXPECT_EQ(file["result"], "delivered") << file;
    EXPECT_EQ(file["run"], "the-run");
    EXPECT_TRUE(file["pid"] == first || file["pid"] == second);
  }
  ExpectDelivered(first);
  ExpectDelivered(second);
  EXPECT_TRUE(Spools().empty());
}

TEST_F(LeftSpoolTest, RecordsWaitOnTheNode) {
  Environment environment = OnTheNode();
  environment["SLURM_TMPDIR"] = folder_ + "/job";
  std::filesystem::create_directories(folder_ + "/job");
  for (const char* name : {"/job", "/tmp"}) {
    StartRelay(environment);
    WriterProcess writer(relay_->socket_name());
    EXPECT_EQ(writer.Do("marks 1000"), "ok");
    EXPECT_EQ(writer.Do("drained 5000"), "yes");
    EXPECT_EQ(SpoolFiles(OfUserIn(folder_ + name) + "/spool").size(), 1u);
    environment.erase("SLURM_TMPDIR");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/home"));
}

TEST_F(LeftSpoolTest, TheNextRelayFindsWhatEarlierVersionsLeft) {
  const Environment environment = OnTheNode();
  const pid_t in_home =
      LeaveIn(folder_ + "/home/.local/state/traincheck/spool");
  const pid_t in_tmp = LeaveIn(OfUserIn(folder_ + "/tmp"));
  StartServer();
  StartRelay(environment);
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  for (const pid_t left : {in_home, in_tmp}) {
    ASSERT_TRUE(store_.WaitFor(
        left, [](const auto& p) { return p.goodbye.has_value(); },
        seconds(50)));
    ExpectDelivered(left);
  }
  writer.Kill();
  ExpectExit(0);
}

TEST_F(LeftSpoolTest, ByHandAllFoldersAreLookedThrough) {
  OnTheNode();
  const pid_t in_home =
      LeaveIn(folder_ + "/home/.local/state/traincheck/spool");
  const pid_t in_tmp = LeaveIn(OfUserIn(folder_ + "/tmp") + "/spool");
  // The list changes nothing, and needs no server.
  for (int i = 0; i < 2; ++i) {
    const Sent listed = AskFor("--list-spool", "");
    EXPECT_EQ(listed.code, 0);
    ASSERT_EQ(listed.files.size(), 2u);
    for (const Json& file : listed.files) {
      EXPECT_EQ(file["result"], "left") << file;
      EXPECT_TRUE(file["pid"] == in_home || file["pid"] == in_tmp) << file;
    }
  }
  StartServer();
  const Sent sent = AskFor("--send-spool", "");
  EXPECT_EQ(sent.code, 0);
  EXPECT_EQ(sent.files.size(), 2u);
  ExpectDelivered(in_home);
  ExpectDelivered(in_tmp);
  EXPECT_TRUE(AskFor("--list-spool", "").files.empty());
}

TEST_F(LeftSpoolTest, AProcessThatDiedWithItsRelayHasUnknownCounters) {
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  const pid_t pid = writer.pid();
  kill(relay_->pid(), SIGKILL);
  // Until it is gone the file is in use.
  ASSERT_TRUE(relay_->Wait(seconds(25)).has_value());
  writer.Kill();
  Age(seconds(700));
  StartServer();
  EXPECT_EQ(SendSpool().code, 0);
  ExpectDelivered(pid);
  EXPECT_EQ(store_.Get(pid).goodbye->end(), v1::END_KIND_DIED);
  EXPECT_EQ(store_.Get(pid).goodbye->rings_size(), 0);
}

TEST_F(LeftSpoolTest, DamageIsSetAsideOrLeftOut) {
  const pid_t left = Leave();
  const std::string path = Spools().at(0);
  std::ofstream(folder_ + "/spool/bad.spool") << "no spool at all";
  {
    // Within the last batch, in front of the goodbye.
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = std::filesystem::file_size(path);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file << "damage";
  }
  Age(seconds(700));
  StartServer();
  const Sent sent = SendSpool();
  EXPECT_EQ(sent.code, 2);
  ASSERT_EQ(sent.files.size(), 2u);
  EXPECT_TRUE(store_.Get(left).goodbye.has_value());
  EXPECT_LT(store_.Get(left).marks.size(), 1000u);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/spool/bad.spool.damaged"));
  EXPECT_TRUE(Spools().empty());
}

// A relay delivers and deletes its file while others hold its name.
TEST_F(LeftSpoolTest, AFileThatIsDeletedMeanwhileIsNotDamaged) {
  const std::string path = folder_ + "/spool/gone.spool";
  const SpoolVerdict verdict =
      JudgeSpool(path, ReadSpoolOwner(path), std::time(nullptr));
  EXPECT_EQ(verdict.fate, SpoolFate::kGone);
  EXPECT_NE(verdict.why.find(path), std::string::npos) << verdict.why;
  SpoolDirectory directory(SpoolPlacesIn(folder_ + "/spool", geteuid()),
                           1 << 20);
  EXPECT_EQ(LoadSpool(&directory, path).status().code(),
            absl::StatusCode::kNotFound);
}

// Virtual machines of one image may share a folder, and have one name.
TEST_F(LeftSpoolTest, AYoungFileOfAnotherBootMayBeInUse) {
  const std::string path = folder_ + "/spool/young.spool";
  std::filesystem::create_directories(folder_ + "/spool");
  std::ofstream(path) << "hello";
  ASSERT_TRUE(std::filesystem::exists(path));
  SpoolOwner owner;
  v1::ProcessIdentity& process = *owner.hello.mutable_process();
  process.set_host(HostName());
  process.set_boot_id("before");
  owner.pid_namespace = PidNamespace();
  const int64_t now = std::time(nullptr);
  EXPECT_EQ(JudgeSpool(path, owner, now).fate, SpoolFate::kInUse);
  const int64_t later = now + kForeignOrphanAge.count() + 1;
  EXPECT_EQ(JudgeSpool(path, owner, later).fate, SpoolFate::kLeft);
}

TEST_F(LeftSpoolTest, AFileOfALaterVersionStaysWhereItIs) {
  const pid_t left = Leave();
  const std::string path = Spools().at(0);
  const auto change_version = [&path] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(8);
    const char version = static_cast<char>(file.get() ^ 0x40);
    file.seekp(8);
    file.put(version);
  };
  change_version();
  Age(seconds(700));
  StartServer();
  const Sent sent = SendSpool();
  EXPECT_EQ(sent.code, 2);
  ASSERT_EQ(sent.files.size(), 1u);
  EXPECT_EQ(sent.files[0]["result"], "unreadable");
  change_version();
  Age(seconds(700));
  EXPECT_EQ(SendSpool().code, 0);
  ExpectDelivered(left);
}

TEST_F(LeftSpoolTest, TheServersNoIsTold) {
  Leave();
  Age(seconds(700));
  StartServer({.refusal = grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no")});
  const Sent sent = SendSpool();
  EXPECT_EQ(sent.code, 3);
  ASSERT_EQ(sent.files.size(), 1u);
  EXPECT_EQ(sent.files[0]["result"], "refused");
  EXPECT_EQ(sent.files[0]["reason"], "no");
  EXPECT_EQ(Spools().size(), 1u);
}

TEST_F(LeftSpoolTest, ATokenThatIsNotKnownYetIsTriedAgain) {
  const pid_t left = Leave();
  Age(seconds(700));
  StartServer({.refusal = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                       "the token is not known"),
               .refuses = 3});
  EXPECT_EQ(SendSpool().code, 0);
  ExpectDelivered(left);
}

TEST_F(LeftSpoolTest, ATokenThatStaysUnknownIsRefused) {
  Leave();
  Age(seconds(700));
  StartServer({.refusal = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                       "the token is not known")});
  EXPECT_EQ(SendSpool().code, 3);
  EXPECT_EQ(Spools().size(), 1u);
}

TEST(ProcessLivenessTest, KnowsWhenAProcessStarted) {
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::system_clock::now().time_since_epoch());
  };
  constexpr milliseconds kTick(20);  // a start is cut to 10 ms
  const auto before = now();
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  const auto ticks = StartTicks(static_cast<uint32_t>(child));
  const auto after = now();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(ticks.has_value());
  const std::chrono::nanoseconds start(UnixNsOfStart(*ticks));
  EXPECT_GE(start, before - kTick);
  EXPECT_LE(start, after + kTick);
}

TEST(ProcessLivenessTest, KnowsWhatItCanSee) {
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host - 1), 0);
  v1::ProcessIdentity process;
  process.set_host(host);
  process.set_boot_id(BootId());
  process.set_pid(static_cast<uint32_t>(getpid()));
  process.set_start_ticks(StartTicks(process.pid()).value());
  const uint64_t here = PidNamespace();
  EXPECT_EQ(LivenessOf(process, here), Liveness::kAlive);
  process.set_start_ticks(process.start_ticks() + 1);  // another one since
  EXPECT_EQ(LivenessOf(process, here), Liveness::kDead);
  EXPECT_EQ(LivenessOf(process, here + 1), Liveness::kUnknown);
  EXPECT_EQ(LivenessOf(process, 0), Liveness::kUnknown);
  // Of this machine before it started anew, or of another one with its name.
  process.set_boot_id("before");
  EXPECT_EQ(LivenessOf(process, here), Liveness::kUnknown);
  process.set_host("elsewhere");
  EXPECT_EQ(LivenessOf(process, here), Liveness::kUnknown);
}

}  // namespace
}  // namespace traincheck::agent
