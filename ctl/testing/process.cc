#include "ctl/testing/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace traincheck::ctl {
namespace {

constexpr int kPollMs = 10;
constexpr int kPatienceMs = 60'000;

std::string NewFolder() {
  const char* base = getenv("TEST_TMPDIR");
  std::string folder =
      std::string(base == nullptr ? "/tmp" : base) + "/process-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) abort();
  return folder;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> CleanEnvironment(
    const std::vector<std::string>& further) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("TRAINCHECK_", 0) != 0) environment.push_back(text);
  }
  environment.insert(environment.end(), further.begin(), further.end());
  return environment;
}

Process::Process(const Options& options) : folder_(NewFolder()) {
  const std::string in = folder_ + "/in";
  std::ofstream(in, std::ios::binary) << options.stdin_text;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, (folder_ + "/out").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&files, 2, (folder_ + "/err").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = CleanEnvironment(options.environment);
  const int error =
      posix_spawnp(&pid_, command[0].c_str(), &files, nullptr,
                   Pointers(&command).data(), Pointers(&environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) abort();
}

Process::~Process() {
  if (!Ended()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove_all(folder_);
}

bool Process::Ended() {
  if (!ended_) ended_ = waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return ended_;
}

bool Process::WaitForText(const std::string& path, const std::string& text) {
  for (int waited = 0; waited < kPatienceMs; waited += kPollMs) {
    const bool ended = Ended();
    if (ReadFile(path).find(text) != std::string::npos) return true;
    if (ended) return false;
    usleep(kPollMs * 1000);
  }
  return false;
}

bool Process::WaitForErr(const std::string& text) {
  return WaitForText(folder_ + "/err", text);
}

bool Process::WaitForOut(const std::string& text) {
  return WaitForText(folder_ + "/out", text);
}

ProcessResult Process::Wait() {
  if (!ended_) waitpid(pid_, &wait_status_, 0);
  ended_ = true;
  return {WIFSIGNALED(wait_status_) ? 128 + WTERMSIG(wait_status_)
                                    : WEXITSTATUS(wait_status_),
          ReadFile(folder_ + "/out"), ReadFile(folder_ + "/err")};
}

ProcessResult RunProcess(const Process::Options& options) {
  return Process(options).Wait();
}

Process::Options Ctl(const std::vector<std::string>& arguments) {
  Process::Options options;
  options.command = {"ctl/traincheckctl"};
  options.command.insert(options.command.end(), arguments.begin(),
                         arguments.end());
  options.environment = {"TRAINCHECK_AGENT_DIR=ctl/testing"};
  return options;
}

}  // namespace traincheck::ctl
