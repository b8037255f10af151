// How a process of its own is started beside ours: in a new process group, with
// no signal blocked or ignored, and no file but /dev/null as its input, our
// stderr as its output, and what it is given. What our terminal or our clients
// do does not reach it.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_BASE_SPAWN_PLAN_H_
#define TRAINCHECK_BASE_SPAWN_PLAN_H_

#include <spawn.h>
#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

namespace traincheck {

class SpawnPlan {
 public:
  // The number under which the process gets `file`.
  static constexpr int kGivenFile = STDERR_FILENO + 1;

  // `file` is ours, close-on-exec, and has another number than kGivenFile.
  explicit SpawnPlan(std::optional<int> file = std::nullopt);
  ~SpawnPlan();
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Variables ("NAME=VALUE") come beside our own environment. 0, or an errno.
  int Spawn(const std::string& program, std::vector<std::string> words,
            const std::vector<std::string>& variables, pid_t* pid) const;

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_SPAWN_PLAN_H_
