// A program under test as a child process, its output in files.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CTL_TESTING_PROCESS_H_
#define TRAINCHECK_CTL_TESTING_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace traincheck::ctl {

struct ProcessResult {
  // 128 + n for a death by signal n.
  int code = -1;
  std::string out;
  std::string err;
};

class Process {
 public:
  struct Options {
    std::vector<std::string> command;
    // "NAME=value", besides what is there and is none of TRAINCHECK_*.
    std::vector<std::string> environment;
    std::string stdin_text;
  };

  explicit Process(const Options& options);
  // Kills what still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }

  // Polls until stderr (stdout) contains `text`; false after a minute or when
  // the process has ended without it.
  bool WaitForErr(const std::string& text);
  bool WaitForOut(const std::string& text);

  ProcessResult Wait();

 private:
  bool WaitForText(const std::string& path, const std::string& text);
  bool Ended();

  std::string folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int wait_status_ = 0;
};

// What this process has besides TRAINCHECK_*, which the tests' own runner sets,
// and `further`.
std::vector<std::string> CleanEnvironment(
    const std::vector<std::string>& further);

ProcessResult RunProcess(const Process::Options& options);

// The traincheckctl of this build with arguments; the empty agent beside it.
Process::Options Ctl(const std::vector<std::string>& arguments);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TESTING_PROCESS_H_
