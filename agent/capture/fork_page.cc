#include "agent/capture/fork_page.h"

#include <sys/mman.h>
#include <unistd.h>

namespace traincheck::agent {

constinit ForkPage g_fork_page = {};

namespace {

#ifndef MADV_WIPEONFORK
constexpr int MADV_WIPEONFORK = 18;
#endif

// What a wiped page has held; copied by every fork.
struct Kept {
  bool recording = false;
  uint32_t generation = 0;
  ProcessRecorder* process = nullptr;
};
constinit Kept g_kept = {};

}  // namespace

void SetRecording(bool on) {
  // In both places, because a fork wipes the page alone.
  g_kept.recording = on;
  g_fork_page.recording.store(on, std::memory_order_relaxed);
}

void SetUpForkPage() {
  // Zeros of a library's memory are anonymous, so that this may be asked of
  // them. A larger page would hold what others need.
  if (sysconf(_SC_PAGESIZE) == static_cast<long>(kForkPageBytes)) {
    madvise(&g_fork_page, kForkPageBytes, MADV_WIPEONFORK);
  }
  g_fork_page.generation = ++g_kept.generation;
  SetRecording(true);
}

void SetProcessRecorder(ProcessRecorder* process) {
  g_kept.process = process;
  g_fork_page.process = process;
}

ProcessRecorder* RenewForkPage() {
  ProcessRecorder* parents = g_kept.process;
  SetProcessRecorder(nullptr);
  SetRecording(g_kept.recording);
  // Counted where no fork wipes it.
  g_fork_page.generation = ++g_kept.generation;
  return parents;
}

bool ForkWasUnseen() { return g_kept.recording && !Recording(); }

}  // namespace traincheck::agent
