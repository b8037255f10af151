#include "tests/bench/daemon_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace traincheck::server {

DaemonProcess::DaemonProcess(const std::string& program,
                             const std::string& folder) {
  const std::string data = folder + "/data";
  const std::string port = folder + "/address";
  std::filesystem::remove(port);  // of a daemon before
  pid_ = fork();
  if (pid_ == 0) {
    execl(program.c_str(), program.c_str(), "--data-dir", data.c_str(),
          "--listen", "127.0.0.1:0", "--port-file", port.c_str(), "--log-level",
          "warning", nullptr);
    _exit(127);
  }
  while (address_.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream(port) >> address_;
  }
}

DaemonProcess::~DaemonProcess() {
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
}

void DaemonProcess::Kill() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

double DaemonProcess::CpuSeconds() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  std::string skipped;
  for (int field = 1; field < 14; ++field) file >> skipped;
  double user = 0;
  double system = 0;
  file >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

long DaemonProcess::Status(const std::string& name) const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) {
      return std::atol(line.c_str() + name.size() + 1);
    }
  }
  return 0;
}

}  // namespace traincheck::server
